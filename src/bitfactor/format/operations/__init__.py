"""The vocabulary of the model file: an entry says all there is to know of an operation."""

from bitfactor.format.operations import convolution, move, pointwise, pool, quantised
from bitfactor.format.operations.operation import Node, Operation

OPERATIONS: dict[str, Operation] = {
    "conv2d": convolution.CONV2D,
    "binary_conv2d": convolution.BINARY_CONV2D,
    "linear": convolution.LINEAR,
    "binary_linear": convolution.BINARY_LINEAR,
    "quantised_conv2d": quantised.QUANTISED_CONV2D,
    "quantised_linear": quantised.QUANTISED_LINEAR,
    "threshold": pointwise.THRESHOLD,
    "scale": pointwise.SCALE,
    "affine": pointwise.AFFINE,
    "relu": pointwise.RELU,
    "prelu": pointwise.PRELU,
    "clip": pointwise.CLIP,
    "sigmoid": pointwise.SIGMOID,
    "softmax": pool.SOFTMAX,
    "add": pointwise.ADD,
    "multiply": pointwise.MULTIPLY,
    "concat": move.CONCAT,
    "max_pool2d": pool.MAX_POOL2D,
    "avg_pool2d": pool.AVG_POOL2D,
    "upsample_nearest": move.UPSAMPLE_NEAREST,
    "global_avg_pool": pool.GLOBAL_AVG_POOL,
    "flatten": move.FLATTEN,
    "reshape": move.RESHAPE,
    "permute": move.PERMUTE,
    "slice": move.SLICE,
}

__all__ = ["OPERATIONS", "Node", "Operation"]
