"""ATen operators as graph operations: a rule each, and the table that names them.

A rule takes the builder, then what the operator takes; values are names, constants are tensors and numbers.
It returns the name of its value, or a list of names where torch returns several.
"""

import operator
from collections.abc import Callable
from typing import Any

from bitfactor.exporter.operators import layers, pointwise, pooling, shapes

FAMILIES = (
    "convolutions, linear layers, BatchNorm, ReLU and its kin, clamp, sigmoid, tanh, silu, "
    "gelu(approximate='tanh'), softmax over channels, sums, products, powers, cat, stack, pooling, nearest "
    "upsampling, pixel_shuffle, reshape, permute, slices"
)

LOWERING: dict[str, Callable[..., Any]] = {
    "bitfactor.binary_conv1d.default": layers.binary_conv,
    "bitfactor.binary_conv2d.default": layers.binary_conv,
    "bitfactor.binary_linear.default": layers.binary_linear,
    "aten.conv1d.default": layers.conv,
    "aten.conv1d.padding": layers.conv_padded,
    "aten.conv2d.default": layers.conv,
    "aten.conv2d.padding": layers.conv_padded,
    "aten.linear.default": layers.linear,
    "aten.batch_norm.default": layers.batch_norm,
    "aten.relu.default": pointwise.relu,
    "aten.relu_.default": pointwise.relu,
    "aten.relu6.default": lambda b, x: pointwise.clip(b, x, 0, 6),
    "aten.abs.default": lambda b, x: pointwise.leaky_relu(b, x, -1.0),
    "aten.prelu.default": pointwise.prelu,
    "aten.leaky_relu.default": pointwise.leaky_relu,
    "aten.leaky_relu_.default": pointwise.leaky_relu,
    "aten.hardtanh.default": pointwise.hardtanh,
    "aten.hardtanh_.default": pointwise.hardtanh,
    "aten.clamp.default": pointwise.clip,
    "aten.clamp_.default": pointwise.clip,
    "aten.relu6_.default": lambda b, x: pointwise.clip(b, x, 0, 6),
    "aten.sigmoid.default": pointwise.sigmoid,
    "aten.sigmoid_.default": pointwise.sigmoid,
    "aten.silu.default": pointwise.silu,
    "aten.silu_.default": pointwise.silu,
    "aten.hardsigmoid.default": pointwise.hardsigmoid,
    "aten.hardsigmoid_.default": pointwise.hardsigmoid,
    "aten.hardswish.default": pointwise.hardswish,
    "aten.hardswish_.default": pointwise.hardswish,
    "aten.tanh.default": pointwise.tanh,
    "aten.tanh_.default": pointwise.tanh,
    "aten.gelu.default": pointwise.gelu,
    "aten.pow.Tensor_Scalar": pointwise.power,
    "aten.square.default": lambda b, x: pointwise.power(b, x, 2),
    "aten.softmax.int": pointwise.softmax,
    "aten.neg.default": lambda b, x: pointwise.mul(b, x, -1.0),
    "aten.add.Tensor": pointwise.add,
    "aten.add_.Tensor": pointwise.add,
    "aten.sub.Tensor": pointwise.sub,
    "aten.sub_.Tensor": pointwise.sub,
    "aten.rsub.Scalar": lambda b, x, y, alpha=1: pointwise.sub(b, y, x, alpha),
    "aten.mul.Tensor": pointwise.mul,
    "aten.mul_.Tensor": pointwise.mul,
    "aten.div.Tensor": pointwise.div,
    "aten.div_.Tensor": pointwise.div,
    "aten.max_pool1d.default": pooling.max_pool,
    "aten.max_pool2d.default": pooling.max_pool,
    "aten.avg_pool1d.default": pooling.avg_pool,
    "aten.avg_pool2d.default": pooling.avg_pool,
    "aten.adaptive_avg_pool1d.default": pooling.adaptive_avg_pool,
    "aten.adaptive_avg_pool2d.default": pooling.adaptive_avg_pool,
    "aten.adaptive_max_pool1d.default": pooling.adaptive_max_pool,
    "aten.adaptive_max_pool2d.default": pooling.adaptive_max_pool,
    "aten.mean.dim": pooling.mean,
    "aten.sum.dim_IntList": pooling.total,
    "aten.upsample_nearest1d.vec": pooling.upsample_nearest,
    "aten.upsample_nearest2d.vec": pooling.upsample_nearest,
    "aten.cat.default": shapes.cat,
    "aten.stack.default": shapes.stack,
    "aten.pixel_shuffle.default": shapes.pixel_shuffle,
    "aten.flatten.using_ints": shapes.reshape,
    "aten.view.default": shapes.reshape,
    "aten.reshape.default": shapes.reshape,
    "aten.unsqueeze.default": shapes.reshape,
    "aten.squeeze.default": shapes.reshape,
    "aten.squeeze.dim": shapes.reshape,
    "aten.squeeze.dims": shapes.reshape,
    "aten.permute.default": shapes.permute,
    "aten.transpose.int": shapes.transpose,
    "aten.slice.Tensor": shapes.slice_,
    "aten.select.int": shapes.select,
    "aten.chunk.default": shapes.chunk,
    "aten.split.Tensor": shapes.split,
    "aten.split_with_sizes.default": shapes.split_with_sizes,
    "aten.expand.default": shapes.same,
    "aten.expand_as.default": shapes.same,
    "aten.alias.default": shapes.same,
    "aten.dropout.default": shapes.same,
    "aten.dropout_.default": shapes.same,
    "aten.feature_dropout.default": shapes.same,
    "aten.detach.default": shapes.same,
    "aten.contiguous.default": shapes.same,
    "aten.clone.default": shapes.same,
    str(operator.getitem): lambda b, values, index: values[index],
}
