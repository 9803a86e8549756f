"""Convolutions and linear layers in 8-bit integers; `bitfactor.format.low_precision` makes them.

A number of the input becomes one of 256 levels, rint((x - lowest) * inverse), cut to 0 ... 255; `lowest` and
`inverse`, levels per unit, are of the whole input or of each of its channels. The sum of levels times int8
weights is an exact integer, and y = fma(sum, scale, bias). A tap outside the map has the level of 0.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.operations.convolution import (
    SLIDING,
    OverPixels,
    Weighted,
    channels_of_group,
    convolved,
    onnx_convolution,
    onnx_kernel,
    onnx_pixels,
    sums_of_products,
)
from bitfactor.format.operations.operation import (
    FLOATS,
    DTypes,
    Float,
    Node,
    Onnx,
    Place,
    Shape,
    bad,
    cut,
    expect_tensor,
    fma,
    onnx_channels,
    onnx_padded,
    pad,
    spread,
)
from bitfactor.format.program import Instruction

LEVELS, LARGEST = 255, 127  # the highest level; the largest magnitude of a weight
MOST_TERMS = (2**31 - 1) // (LEVELS * (LARGEST + 1))  # of a sum in 32 bits
_TENSORS: dict[str, DTypes] = {
    "weight": (np.int8,),
    "scale": FLOATS,
    "bias": FLOATS,
    "lowest": FLOATS,
    "inverse": FLOATS,
}


def expect_terms(node: Node) -> None:
    """Raise InputError where sums of an output might not fit 32 bits."""
    terms = prod(node.tensors["weight"].shape[1:])
    if terms > MOST_TERMS:
        raise bad(node, f"at most {MOST_TERMS} products of an output in 8-bit integers", str(terms))


def _expect(node: Node, channels: int, outputs: int) -> None:
    expect_tensor(node, "scale", (outputs,))
    expect_tensor(node, "bias", (outputs,))
    expect_tensor(node, "lowest", (1,), (channels,))
    expect_tensor(node, "inverse", node.tensors["lowest"].shape)
    expect_terms(node)


def unquantised(node: Node) -> dict[str, Float]:
    """Return weight and bias of the same layer whose input is not rounded to levels."""
    weight, groups = node.tensors["weight"], int(node.attributes.get("groups", 1))
    outputs, *taps, depth = weight.shape

    def of_inputs(role: str) -> Float:
        channels = np.broadcast_to(node.tensors[role], groups * depth).reshape(groups, depth)
        return np.repeat(channels, outputs // groups, 0).reshape(outputs, *[1] * len(taps), depth)

    real = weight * of_inputs("inverse") * spread(node.tensors["scale"], weight.ndim)
    left_out = (real * of_inputs("lowest")).reshape(outputs, -1).sum(1)
    return {"weight": real, "bias": node.tensors["bias"] - left_out}


def _levels(x: Float, node: Node) -> Float:
    lowest, inverse = (spread(node.tensors[role], x.ndim - 1) for role in ("lowest", "inverse"))
    return np.rint(cut((x - lowest) * inverse, 0, LEVELS))


def _finished(node: Node, sums: NDArray[np.int64]) -> Float:
    scale, bias = (spread(node.tensors[role], sums.ndim - 1) for role in ("scale", "bias"))
    return fma(sums.astype(np.float32), scale, bias)


def _onnx_levels(b: Onnx, node: Node, x: str, dimensions: int) -> str:
    lowest, inverse = (onnx_channels(b, node, role, dimensions) for role in ("lowest", "inverse"))
    scaled = b.emit("Mul", [b.emit("Sub", [x, lowest]), inverse])
    return b.emit("Round", [b.emit("Clip", [scaled, b.number(0), b.number(LEVELS)])])


def _onnx_finished(b: Onnx, node: Node, sums: str, dimensions: int) -> None:
    scale, bias = (onnx_channels(b, node, role, dimensions) for role in ("scale", "bias"))
    b.emit("Add", [b.emit("Mul", [sums, scale]), bias], node.name)


class QuantisedConv2d(Weighted):
    tensors = _TENSORS
    attributes = SLIDING

    def infer(self, node: Node, x: Shape) -> Shape:
        if len(x) != 3:
            raise bad(node, "one map, shaped (C, H, W)", str(x))
        shape = convolved(node, x, channels_of_group(node, x))
        _expect(node, x[0], shape[0])
        return shape

    def reference(self, node: Node, x: Float) -> Float:
        levels = _levels(pad(x, node, 0), node)
        return _finished(node, sums_of_products(node, levels, node.tensors["weight"]))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        dimensions = len(b.shape(x))
        padded, window = onnx_padded(b, node, x, onnx_convolution(b, node, x), 0)
        kernel = onnx_kernel(b, x, node.tensors["weight"]).astype(np.float32)
        levels, weight = _onnx_levels(b, node, padded, dimensions), b.constant(kernel, f"{node.name}:weight")
        _onnx_finished(b, node, b.emit("Conv", [levels, weight], attributes=window), dimensions)

    def rows(self, node: Node, place: Place) -> Instruction:
        weight, groups = node.tensors["weight"], node.attributes["groups"]
        tensors = {role: node.tensors[role] for role in ("scale", "bias", "lowest", "inverse")}
        tensors["weight"] = np.ascontiguousarray(weight).view(np.uint8)
        window = place.window(node, weight.shape[1:3])
        return Instruction.of(
            "quantised_conv", source=place.sources[0], window=window, groups=groups, **tensors
        )


class QuantisedLinear(OverPixels):
    of = QuantisedConv2d()
    tensors = _TENSORS

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        dimensions = len(b.shape(x))
        levels = _onnx_levels(b, node, x, dimensions)
        weight = node.tensors["weight"].astype(np.float32)
        if dimensions == 1:
            sums = b.emit("MatMul", [levels, b.constant(weight.T, f"{node.name}:weight")])
        else:
            sums = onnx_pixels(b, levels, b.constant(weight, f"{node.name}:weight"), dimensions)
        _onnx_finished(b, node, sums, dimensions)
