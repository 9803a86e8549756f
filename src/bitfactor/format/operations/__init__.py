"""The vocabulary of the model file: an entry says all there is to know of an operation."""

import numpy as np

from bitfactor.format.operations import convolution, integer, move, pointwise, pool, quantised
from bitfactor.format.operations.operation import Node, Operation

OPERATIONS: dict[str, Operation] = {
    "conv2d": convolution.Conv2d(),
    "binary_conv2d": convolution.BinaryConv2d(),
    "matmul": convolution.Matmul(),
    "linear": convolution.Linear(),
    "binary_linear": convolution.BinaryLinear(),
    "quantised_conv2d": quantised.QuantisedConv2d(),
    "quantised_linear": quantised.QuantisedLinear(),
    "threshold": pointwise.Threshold(),
    "scale": pointwise.Scale(),
    "affine": pointwise.Affine(),
    "prelu": pointwise.Prelu(),
    "clip": pointwise.Clip(),
    **pointwise.FUNCTIONS,
    "gelu": pointwise.Gelu(),
    "softmax": pool.Softmax(),
    "add": pointwise.Paired("add", "Add", np.add),
    "multiply": pointwise.Paired("multiply", "Mul", np.multiply),
    "concat": move.Concat(),
    "join": move.Join(),
    "max_pool2d": pool.MaxPool2d(),
    "avg_pool2d": pool.AvgPool2d(),
    "upsample_nearest": move.UpsampleNearest(),
    "global_avg_pool": pool.GlobalAvgPool(),
    "reduce_pixels": pool.ReducePixels(),
    "reduce_channels": pool.ReduceChannels(),
    "layer_norm": pool.LayerNorm(),
    "resize_bilinear": pool.ResizeBilinear(),
    "flatten": move.Flatten(),
    "reshape": move.Reshape(),
    "permute": move.Permute(),
    "slice": move.Slice(),
    "rearrange": move.Rearrange(),
    "take": move.Take(),
    "pad": move.Pad(),
    "embedding": move.Embedding(),
    "constant": move.Constant(),
    "integer_quantise": integer.Quantise(),
    "integer_conv2d": integer.IntegerConv2d(),
    "integer_linear": integer.IntegerLinear(),
    "integer_weigh": integer.Weigh(),
    "integer_add": integer.WeighTwo(),
    "integer_prelu": integer.Bend(),
    "integer_avg_pool2d": integer.IntegerAvgPool2d(),
    "integer_global_avg_pool": integer.IntegerGlobalAvgPool(),
}

__all__ = ["OPERATIONS", "Node", "Operation"]
