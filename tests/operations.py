"""Each operation that a file holds, by itself: its nodes, and the shape of its input x."""

from dataclasses import replace

import numpy as np

from bitfactor.format import Graph, ModelFile, Node, Value, pack_signs

SLIDING = {"stride": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 2}
POOL = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 2, 1)}


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), shape)


def sign_of(name, channels):
    tensors = {"threshold": floats(channels, seed=5) / 4, "direction": signs(channels, seed=6)}
    return Node("bits", "threshold", (name,), {}, tensors)


def layer(op, weight, attributes=None, **tensors):
    outputs = len(weight)
    return [Node("y", op, ("x",), attributes or {}, {"weight": weight, "bias": floats(outputs), **tensors})]


def quantised(op, weight, attributes=None, ranges=1):
    tensors = {"lowest": -abs(floats(ranges)), "inverse": 50 + floats(ranges), "scale": floats(len(weight))}
    return layer(op, weight, attributes, **tensors)


def pointwise(op, *inputs, attributes=None, **tensors):
    return [Node("y", op, inputs or ("x",), attributes or {}, tensors)]


def int8(*shape):
    return np.random.default_rng(0).integers(-127, 128, shape, np.int8)


def binary_conv(channels, outputs, pad_value=0, **attributes):
    attributes = SLIDING | {"pad_value": pad_value} | attributes
    weight = pack_signs(signs(outputs, 3, 2, channels // attributes["groups"]))
    return [sign_of("x", channels), Node("y", "binary_conv2d", ("bits",), attributes, {"weight": weight})]


def binary_linear(features, outputs):
    weight = pack_signs(signs(outputs, features))
    return [sign_of("x", features), Node("y", "binary_linear", ("bits",), {}, {"weight": weight})]


def second(op, shape):
    """An operation of x and of its mean over the map, or of itself."""
    if shape == "map":
        return pointwise(op, "x", "x")
    return [Node("mean", "global_avg_pool", ("x",)), *pointwise(op, "x", "mean")]


def product(transposed):
    """Of x and of its transposed, or of what is made of it."""
    if transposed:
        return pointwise("matmul", "x", "x", attributes={"groups": 2, "transposed": 1})
    split = {"split": (-1, -1, 2, 3), "parts": (1, 1, 2), "repeats": (), "groups": ((0,), (3,), (2, 1))}
    return [
        Node("z", "rearrange", ("x",), split),
        *pointwise("matmul", "x", "z", attributes={"groups": 2, "transposed": 0}),
    ]


CASES = {
    "conv2d": (layer("conv2d", floats(6, 3, 2, 4), SLIDING), (8, 9, 10)),
    "conv2d of float16": (layer("conv2d", floats(6, 3, 2, 4).astype(np.float16), SLIDING), (8, 9, 10)),
    "conv2d of int8": (layer("conv2d", int8(6, 3, 2, 4), SLIDING, step=floats(6)), (8, 9, 10)),
    "quantised_conv2d": (quantised("quantised_conv2d", int8(6, 3, 2, 4), SLIDING), (8, 9, 10)),
    "quantised_conv2d by channel": (quantised("quantised_conv2d", int8(6, 3, 2, 4), SLIDING, 8), (8, 9, 10)),
    "quantised_linear": (quantised("quantised_linear", int8(5, 12)), (12,)),
    "binary_conv2d": (binary_conv(6, 4), (6, 9, 10)),
    "binary_conv2d, signs fill no byte": (binary_conv(3, 5, groups=1), (3, 9, 10)),
    "binary_conv2d padded with +1": (binary_conv(70, 4, pad_value=1), (70, 9, 10)),
    "binary_conv2d padded with -1": (binary_conv(6, 4, pad_value=-1), (6, 9, 10)),
    "linear": (layer("linear", floats(5, 12)), (12,)),
    "linear of float16": (layer("linear", floats(5, 12).astype(np.float16)), (12,)),
    "linear of int8": (layer("linear", int8(5, 12), step=floats(5)), (12,)),
    "binary_linear": (binary_linear(70, 6), (70,)),
    "threshold": ([replace(sign_of("x", 6), name="y")], (6, 3, 3)),
    "threshold of features": ([replace(sign_of("x", 6), name="y")], (6,)),
    "scale": (pointwise("scale", alpha=floats(4)), (4, 5, 6)),
    "scale of each number": (pointwise("scale", alpha=floats(4, 5, 6)), (4, 5, 6)),
    "affine": (pointwise("affine", scale=floats(4), shift=floats(4, seed=1)), (4, 5, 6)),
    "affine of features": (pointwise("affine", scale=floats(4), shift=floats(4, seed=1)), (4,)),
    "relu": (pointwise("relu"), (4, 5, 6)),
    "prelu": (pointwise("prelu", slope=floats(4)), (4, 5, 6)),
    "clip": (pointwise("clip", attributes={"lower": -0.25, "upper": 1.0}), (4, 5, 6)),
    "sigmoid": (pointwise("sigmoid"), (4, 5, 6)),
    "softmax": (pointwise("softmax"), (4, 5, 6)),
    "add": (second("add", "map"), (4, 5, 6)),
    "multiply": (second("multiply", "map"), (4, 5, 6)),
    "multiply by one number per channel": (second("multiply", "channels"), (4, 5, 6)),
    "concat": ([Node("z", "relu", ("x",)), *pointwise("concat", "x", "z", "x")], (4, 5, 6)),
    "max_pool2d": (pointwise("max_pool2d", attributes=POOL), (4, 7, 8)),
    "avg_pool2d": (pointwise("avg_pool2d", attributes=POOL | {"count_include_pad": 1}), (4, 7, 8)),
    "avg_pool2d of the map": (pointwise("avg_pool2d", attributes=POOL | {"count_include_pad": 0}), (4, 7, 8)),
    "upsample_nearest": (pointwise("upsample_nearest", attributes={"scale": (2, 3)}), (4, 5, 6)),
    "global_avg_pool": (pointwise("global_avg_pool"), (4, 5, 6)),
    "flatten": (pointwise("flatten"), (4, 5, 6)),
    "reshape": (pointwise("reshape", attributes={"shape": (2, 10, 6)}), (4, 5, 6)),
    "permute": (pointwise("permute", attributes={"order": (2, 0, 1)}), (4, 5, 6)),
    "slice": (pointwise("slice", attributes={"range": (1, 1, 5, 2)}), (4, 5, 6)),
    "linear of pixels": (layer("linear", floats(5, 12)), (12, 3, 2)),
    "binary_linear of pixels": (binary_linear(70, 6), (70, 4)),
    "matmul": (product(0), (6, 2, 3)),
    "matmul transposed": (product(1), (6, 2, 4)),
    "affine of each number": (
        pointwise("affine", scale=floats(4, 5, 6), shift=floats(4, 5, 6, seed=1)),
        (4, 5, 6),
    ),
    "exp": (pointwise("exp"), (4, 5, 6)),
    "log": ([Node("z", "exp", ("x",)), *pointwise("log", "z")], (4, 5, 6)),
    "sqrt": ([Node("z", "exp", ("x",)), *pointwise("sqrt", "z")], (4, 5, 6)),
    "reciprocal": ([Node("z", "exp", ("x",)), *pointwise("reciprocal", "z")], (4, 5, 6)),
    "gelu": (pointwise("gelu"), (4, 5, 6)),
    "layer_norm": (pointwise("layer_norm", attributes={"eps": 1e-5}), (40, 5, 6)),
    **{
        f"reduce_{over} {how}": (pointwise(f"reduce_{over}", attributes={"how": how}), (20, 5, 6))
        for over in ("pixels", "channels")
        for how in ("mean", "sum", "max", "min")
    },
    "resize_bilinear": (
        pointwise("resize_bilinear", attributes={"size": (0, 0), "scale": (2.0, 1.5), "align_corners": 0}),
        (4, 5, 6),
    ),
    "resize_bilinear to a size": (
        pointwise("resize_bilinear", attributes={"size": (3, 9), "scale": (0.0, 0.0), "align_corners": 1}),
        (4, 5, 6),
    ),
    "join": ([Node("z", "relu", ("x",)), *pointwise("join", "x", "z", attributes={"axis": 1})], (4, 5, 6)),
    "join with a constant": (
        [
            Node("z", "constant", (), {}, {"value": floats(4, 2, 6)}),
            *pointwise("join", "z", "x", attributes={"axis": 1}),
        ],
        (4, 5, 6),
    ),
    "take": (pointwise("take", attributes={"axis": 2, "indices": (5, 0, 0, 3)}), (4, 5, 6)),
    "pad": (
        pointwise("pad", attributes={"axis": 1, "before": 2, "after": 1, "value": 0.5}),
        (4, 5, 6),
    ),
    "rearrange": (
        pointwise(
            "rearrange",
            attributes={
                "split": (-1, 2, -1, 4),
                "parts": (1, 2, 1),
                "repeats": (3,),
                "groups": ((2, 0), (4,), (3, 1)),
            },
        ),
        (4, 5, 6),
    ),
    "rearrange to axes of length 1": (
        pointwise(
            "rearrange",
            attributes={"split": (-1,), "parts": (0, 0, 1), "repeats": (), "groups": ((), (), (0,), ())},
        ),
        (4, 1, 1),
    ),
    "embedding": (
        [
            Node("z", "clip", ("x",), {"lower": 0.0, "upper": 8.0}),
            *pointwise("embedding", "z", table=floats(9, 5)),
        ],
        (4, 6),
    ),
}


OVER_MAPS = (  # each of three maps by itself; the last takes all of them
    "conv2d",
    "conv2d of int8",
    "binary_conv2d",
    "binary_conv2d padded with +1",
    "max_pool2d",
    "avg_pool2d",
    "avg_pool2d of the map",
    "upsample_nearest",
    "resize_bilinear",
    "global_avg_pool",
)
CASES |= {
    f"{name}, over maps": (nodes, (shape[0], 3, *shape[1:]))
    for name, (nodes, shape) in CASES.items()
    if name in OVER_MAPS
}


def model_of(nodes, shape, outputs=None, **known):
    graph = Graph(Value("x", shape, "float32"), tuple(nodes), outputs or (nodes[-1].name,))
    golden = tuple(np.zeros((1, *graph.values[name].shape), np.float32) for name in graph.outputs)
    return ModelFile(graph, golden, **known)
