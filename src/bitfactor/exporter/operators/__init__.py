"""ATen operators as graph operations: a rule each, and the table that names them.

A rule takes the builder, then what the operator takes; values are views, constants are tensors and numbers.
It returns the view of its value, or a list of them where torch returns several. One that is a function is
called where its value is used. What an operator does in place has the rule of the same without.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch

from bitfactor.exporter.operators import attention, convolutions, functions, pooling, shapes

FAMILIES = (
    "convolutions, linear layers, products of matrices, attention, normalisations, activations, softmax, "
    "sums, maxima and means over dimensions, arithmetic, comparisons, cat, stack, pooling, resizing, "
    "padding, reshape, permute, slices, indices that are constants"
)

# The operators of ATen that have a rule, by name and overload; one without an overload is the default.
_OF_ATEN: list[tuple[Callable[..., Any], str]] = [
    (convolutions.conv, "conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding"),
    (convolutions.conv_transposed, "conv_transpose1d conv_transpose2d.input conv_transpose3d.input"),
    (convolutions.linear, "linear"),
    (convolutions.layer_norm, "layer_norm"),
    (convolutions.group_norm, "group_norm"),
    (convolutions.instance_norm, "instance_norm"),
    (convolutions.batch_norm, "batch_norm"),
    (convolutions.batch_norm_alone, "_native_batch_norm_legit_no_training"),
    (convolutions.col2im, "col2im"),
    (attention.matmul, "matmul mm bmm"),
    (attention.addmm, "addmm baddbmm"),
    (attention.einsum, "einsum"),
    (attention.attention, "scaled_dot_product_attention"),
    (attention.bilinear, "bilinear"),
    (functions.relu, "relu"),
    (lambda b, x: functions.clip(b, x, 0, 6), "relu6"),
    (functions.absolute, "abs"),
    (functions.prelu, "prelu"),
    (functions.leaky_relu, "leaky_relu"),
    (lambda b, x, lower=-1, upper=1: functions.clip(b, x, lower, upper), "hardtanh"),
    (functions.clamped, "clamp clamp.Tensor"),
    (functions.sigmoid, "sigmoid"),
    (functions.silu, "silu"),
    (functions.hardsigmoid, "hardsigmoid"),
    (functions.hardswish, "hardswish"),
    (functions.tanh, "tanh"),
    (functions.gelu, "gelu"),
    (functions.elu, "elu"),
    (functions.celu, "celu"),
    (functions.softplus, "softplus"),
    (functions.softmax, "softmax.int"),
    (lambda b, x, dim=-1: functions.glu(b, *shapes.chunk(b, x, 2, dim)), "glu"),
    (functions.threshold, "threshold"),
    (functions.hardshrink, "hardshrink"),
    (functions.softshrink, "softshrink"),
    (functions.rrelu, "rrelu"),
    (functions.erf, "erf"),
    (lambda b, x: functions.sub(b, 1.0, functions.erf(b, x)), "erfc"),
    (lambda b, x: b.alike("exp", x), "exp"),
    (lambda b, x: functions.sub(b, b.alike("exp", x), 1.0), "expm1"),
    (lambda b, x: functions.power_of(b, 2.0, x), "exp2"),
    (lambda b, x: b.alike("log", x), "log"),
    (lambda b, x: b.alike("log", functions.add(b, x, 1.0)), "log1p"),
    (functions.logarithm(2), "log2"),
    (functions.logarithm(10), "log10"),
    (lambda b, x: functions.power(b, x, 0.5), "sqrt"),
    (lambda b, x: functions.power(b, x, -0.5), "rsqrt"),
    (lambda b, x: functions.power(b, x, -1), "reciprocal"),
    (functions.power, "pow.Tensor_Scalar"),
    (functions.power_of, "pow.Scalar pow.Tensor_Tensor"),
    (functions.sign, "sign"),
    (functions.best_of("max"), "maximum fmax"),
    (functions.best_of("min"), "minimum fmin"),
    (functions.where, "where.self"),
    (lambda b, x: functions.mul(b, x, -1.0), "neg"),
    (functions.add, "add.Tensor add.Scalar"),
    (functions.sub, "sub.Tensor sub.Scalar"),
    (functions.mul, "mul.Tensor mul.Scalar"),
    (functions.divided, "div.Tensor div.Scalar div.Tensor_mode"),
    (lambda b, x, y: functions.quotient(b, x, y)[1], "remainder.Scalar remainder.Tensor"),
    (functions.fmod, "fmod.Scalar fmod.Tensor"),
    (functions.floor, "floor"),
    (functions.ceil, "ceil"),
    (functions.rounded, "round round.decimals"),
    (functions.truncated, "trunc"),
    (functions.sine, "sin"),
    (functions.cosine, "cos"),
    (functions.hyperbolic(-1.0), "sinh"),
    (functions.hyperbolic(1.0), "cosh"),
    (
        lambda b, x, y: b.alike("sqrt", functions.add(b, functions.mul(b, x, x), functions.mul(b, y, y))),
        "hypot",
    ),
    (functions.above, "gt.Scalar gt.Tensor"),
    (functions.below, "lt.Scalar lt.Tensor"),
    (functions.at_least, "ge.Scalar ge.Tensor"),
    (functions.at_most, "le.Scalar le.Tensor"),
    (functions.equal, "eq.Scalar eq.Tensor"),
    (functions.differs, "ne.Scalar ne.Tensor"),
    (functions.no_number, "isnan"),
    (functions.of_bits(functions.both), "bitwise_and.Tensor"),
    (functions.of_bits(functions.either), "bitwise_or.Tensor"),
    (functions.of_bits(functions.differs), "bitwise_xor.Tensor"),
    (functions.of_bits(functions.negated), "bitwise_not"),
    (functions.of_truth(functions.both), "logical_and"),
    (functions.of_truth(functions.either), "logical_or"),
    (functions.of_truth(functions.differs), "logical_xor"),
    (functions.of_truth(functions.negated), "logical_not"),
    (pooling.max_pool, "max_pool1d max_pool2d max_pool3d"),
    (
        pooling.max_pool_with_places,
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
    ),
    (pooling.avg_pool, "avg_pool1d avg_pool2d avg_pool3d"),
    (pooling.adaptive_avg_pool, "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    (pooling.adaptive_max_pool, "adaptive_max_pool2d adaptive_max_pool3d"),
    (pooling.upsample_bilinear, "upsample_bilinear2d.vec upsample_linear1d.vec"),
    (pooling.upsample_nearest, "upsample_nearest1d.vec upsample_nearest2d.vec"),
    (pooling.reduction("mean"), "mean.dim mean"),
    (pooling.reduction("sum"), "sum.dim_IntList sum"),
    (pooling.reduction("max"), "amax max"),
    (pooling.reduction("min"), "amin min"),
    (pooling.best_of_dim("max"), "max.dim"),
    (pooling.best_of_dim("min"), "min.dim"),
    (pooling.place_of("max"), "argmax"),
    (pooling.place_of("min"), "argmin"),
    (pooling.holds("max"), "any any.dim any.dims"),
    (pooling.holds("min"), "all all.dim all.dims"),
    (pooling.vector_norm, "linalg_vector_norm"),
    (pooling.variance, "var.correction"),
    (
        lambda b, x, *args, **kwargs: [
            pooling.variance(b, x, *args, **kwargs),
            pooling.reduced(b, "mean", x, args[0] if args else None, kwargs.get("keepdim", False)),
        ],
        "var_mean.correction",
    ),
    (pooling.log_softmax, "log_softmax.int"),
    (pooling.logsumexp, "logsumexp"),
    (pooling.running_total, "cumsum"),
    (pooling.product, "prod.dim_int"),
    (pooling.index, "index.Tensor _unsafe_index.Tensor"),
    (pooling.index_select, "index_select"),
    (pooling.index_put, "index_put"),
    (pooling.gather, "gather"),
    (pooling.slice_scatter, "slice_scatter"),
    (pooling.select_scatter, "select_scatter"),
    (pooling.written, "copy"),
    (pooling.one_hot, "one_hot"),
    (pooling.diagonal, "diagonal"),
    (shapes.cat, "cat"),
    (shapes.stack, "stack"),
    (shapes.im2col, "im2col"),
    (shapes.windows, "unfold"),
    (shapes.pad, "pad constant_pad_nd"),
    (shapes.flip, "flip"),
    (
        shapes.reshape,
        "flatten.using_ints view reshape unsqueeze squeeze squeeze.dim squeeze.dims _unsafe_view",
    ),
    (shapes.permute, "permute"),
    (shapes.transpose, "transpose.int"),
    (shapes.transposed, "t"),
    (shapes.embedding, "embedding"),
    (shapes.unbind, "unbind.int"),
    (shapes.repeat, "repeat"),
    (shapes.expand, "expand"),
    (shapes.slice_, "slice.Tensor"),
    (shapes.select, "select.int"),
    (shapes.chunk, "chunk"),
    (shapes.split, "split.Tensor"),
    (shapes.split_with_sizes, "split_with_sizes"),
    (shapes.cast, "to.dtype to.device to.dtype_layout _to_copy"),
    (shapes.same, "alias detach contiguous clone lift_fresh_copy dropout feature_dropout alpha_dropout"),
    (shapes.filled(1.0), "ones_like"),
    (shapes.filled(0.0), "zeros_like"),
    (lambda b, x, value, **_: torch.full(x.shape, value), "full_like"),
    (lambda b, x, dim: x.shape[dim], "sym_size.int"),
    (lambda b, x, *_, **__: None, "_assert_tensor_metadata"),
]
_OF_SIDES = {
    1: "_upsample_nearest_exact1d",
    2: "_upsample_nearest_exact2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
    3: "_upsample_nearest_exact3d upsample_nearest3d upsample_trilinear3d",
}

LOWERING: dict[str, Callable[..., Any]] = {
    **{
        f"aten.{name if '.' in name else f'{name}.default'}": rule
        for rule, names in _OF_ATEN
        for name in names.split()
    },
    **{
        f"aten.{name}.vec": pooling.by_sides(getattr(torch.ops.aten, name).vec, sides)
        for sides, names in _OF_SIDES.items()
        for name in names.split()
    },
    "bitfactor.binary_conv1d.default": convolutions.binary_conv,
    "bitfactor.binary_conv2d.default": convolutions.binary_conv,
    "bitfactor.binary_conv3d.default": convolutions.binary_conv3d,
    "bitfactor.binary_conv_transpose1d.default": convolutions.binary_conv_transposed,
    "bitfactor.binary_conv_transpose2d.default": convolutions.binary_conv_transposed,
    "bitfactor.binary_linear.default": convolutions.binary_linear,
    "prims.convert_element_type.default": shapes.cast,
    str(operator.getitem): lambda b, values, index: (
        values[index]() if callable(values[index]) else values[index]
    ),
}


def rule_of(target: object) -> Callable[..., Any] | None:
    """Return the rule of an operator, None where there is none."""
    name = str(target)
    return LOWERING.get(name) or LOWERING.get(name.replace("_.", ".", 1))
