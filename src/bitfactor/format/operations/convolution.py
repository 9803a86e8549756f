"""Convolutions and linear layers, of real numbers and of signs."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.bits import WORD_BITS, unpack_signs, words_for
from bitfactor.format.operations.operation import (
    BIT,
    FLOAT,
    FLOATS,
    Array,
    DTypes,
    Float,
    Node,
    Onnx,
    Place,
    Rows,
    Shape,
    bad,
    expect_tensor,
    fma,
    integers,
    onnx_channels,
    onnx_padded,
    onnx_window,
    pad,
    spread,
    window_size,
    windows,
)
from bitfactor.format.program import Instruction

SLIDING = ("stride", "padding", "dilation", "groups")
_REAL: dict[str, DTypes] = {"weight": (np.float32, np.float16, np.int8), "bias": FLOATS}
_SIGNS: dict[str, DTypes] = {"weight": (np.uint64,)}
_ONNX_FLOAT = 1  # onnx.TensorProto.FLOAT


def real_weight(node: Node) -> Float:
    """Return the weight of a conv2d or linear node as it is computed with, whatever it is stored as.

    float16 is widened; int8 is multiplied by the `step` of its output channel.
    """
    weight = node.tensors["weight"].astype(np.float32)
    if "step" in node.tensors:
        weight *= spread(node.tensors["step"], weight.ndim)
    return weight


def terms_of(node: Node, x: Shape) -> int:
    """Return how many products, of an input x, each output of a layer sums up."""
    taps = prod(node.tensors["weight"].shape[1:-1])
    return taps * (x[0] // int(node.attributes.get("groups", 1)))


class Weighted(Rows):
    """A convolution or a linear layer."""

    def macs(self, node: Node, x: Shape, y: Shape) -> int:
        """Outputs times the products of each; a tap on the padding counts as any other."""
        return prod(y) * terms_of(node, x)


class OverPixels(Weighted):
    """A linear layer, whose weight is (O, F): the convolution `of`, by single pixels."""

    of: Weighted

    def infer(self, node: Node, x: Shape) -> Shape:
        weight = node.tensors["weight"].shape
        if len(weight) != 2 or weight[1] != x[0]:
            raise bad(node, "an input shaped (F, ...) and a weight shaped (O, F)", f"{x} and {weight}")
        self.of.infer(by_pixels(node), (x[0], 1, prod(x[1:])))  # the rest of its tensors
        return (weight[0], *x[1:])

    def reference(self, node: Node, x: Array) -> Array:
        """(N, F, ...) -> (N, O, ...): each pixel by itself."""
        y = self.of.reference(by_pixels(node), x.reshape(*x.shape[:2], 1, prod(x.shape[2:])))
        return y.reshape(*y.shape[:2], *x.shape[2:])

    def rows(self, node: Node, place: Place) -> Instruction:
        before, after = ((shape[0], 1, prod(shape[1:])) for shape in (place.shapes[0], place.shape))
        return self.of.rows(by_pixels(node), replace(place, shapes=(before,), shape=after))


def by_pixels(node: Node) -> Node:
    """Return a linear layer as a convolution over a line of all pixels."""
    window = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, "pad_value": 0}
    tensors = {**node.tensors, "weight": node.tensors["weight"][:, None, None]}
    return replace(node, attributes={**node.attributes, **window}, tensors=tensors)


def convolved(node: Node, x: Shape, depth: int) -> Shape:
    """Return the shape of a convolution whose weight is (O, kh, kw, depth)."""
    weight = node.tensors["weight"].shape
    if len(weight) != 4 or weight[3] != depth or weight[0] % node.attributes["groups"]:
        groups = node.attributes["groups"]
        raise bad(node, f"weight shaped (O, kh, kw, {depth}), O divisible by groups {groups}", str(weight))
    return (weight[0], *window_size(node, x, (weight[1], weight[2]), integers(node, "dilation", 2, 1)))


def channels_of_group(node: Node, x: Shape) -> int:
    """Return the channels of the input that one group reads."""
    groups = node.attributes["groups"]
    if not isinstance(groups, int) or groups < 1 or x[0] % groups:
        raise bad(node, f"groups that divide {x[0]} channels", repr(groups))
    return x[0] // groups


def taps_of(x: Array, node: Node, weight: Array) -> Iterator[tuple[Array, Array]]:
    """Yield x (N, G, C/G, H', W') and weight (G, O/G, C/G) of each tap, for x padded and G groups."""
    groups: Any = node.attributes["groups"]
    outputs, height, width, depth = weight.shape
    taps = windows(x, (height, width), node.attributes["stride"], node.attributes["dilation"])
    for i, window in enumerate(taps):
        tap = weight[:, i // width, i % width].reshape(groups, outputs // groups, depth)
        yield window.reshape(len(x), groups, depth, *window.shape[2:]), tap


def sums_of_products(
    node: Node, padded: Array, weight: Array, exact: type[np.floating[Any]] = np.float64
) -> NDArray[np.int64]:
    """Return sums that `exact` holds: of less than 2^24 in float32, 2^53 in float64; its product is fast."""
    total: Any = 0
    for window, tap in taps_of(padded.astype(exact), node, weight.astype(exact)):
        n, groups, depth, *size = window.shape
        total = total + (tap @ window.reshape(n, groups, depth, -1)).reshape(n, -1, *size)
    return np.asarray(total).astype(np.int64)


def onnx_kernel(b: Onnx, x: str, weight: Array) -> Array:
    """(O, kh, kw, C) -> (O, C, kh, kw), or (O, C, 1, kh, kw) where x is (C, M, H, W)."""
    kernel = weight.transpose(0, 3, 1, 2)
    return kernel.reshape(*kernel.shape[:2], *[1] * (len(b.shape(x)) - 3), *kernel.shape[2:])


def onnx_convolution(b: Onnx, node: Node, x: str) -> dict[str, Any]:
    """Return the window of a convolution of x as ONNX has it."""
    window = onnx_window(b, node, x, node.tensors["weight"].shape[1:3])
    dilation = [*[1] * (len(b.shape(x)) - 3), *node.attributes["dilation"]]
    return window | {"dilations": dilation, "group": node.attributes["groups"]}


def _onnx_weight(b: Onnx, node: Node, weight: Array) -> str:
    """Store the weight as small as in the file; what other types than float32 stand for is computed."""
    name = b.constant(weight, f"{node.name}:weight")
    if weight.dtype != np.float32:
        name = b.emit("Cast", [name], attributes={"to": _ONNX_FLOAT})
    if "step" in node.tensors:
        name = b.emit("Mul", [name, onnx_channels(b, node, "step", weight.ndim)])
    return name


def _onnx_bias(b: Onnx, node: Node) -> str:
    return b.constant(node.tensors["bias"], f"{node.name}:bias")


def _words(weight: NDArray[np.uint64], channels: int) -> NDArray[np.uint32]:
    """(..., 64-bit words) -> (..., 32-bit words), without the last where it holds no signs."""
    return np.ascontiguousarray(weight).view(np.uint32)[..., : -(-channels // 32)]


def _expect_range(node: Node, x: Shape) -> None:
    """Raise InputError unless a range, if there is one, is of the whole input or of each channel."""
    if "range" in node.tensors:
        by_channel = [] if node.attributes.get("groups", 1) > 1 else [(2, x[0])]
        expect_tensor(node, "range", (2,), *by_channel)


class Conv2d(Weighted):
    tensors = _REAL
    attributes = SLIDING

    def infer(self, node: Node, x: Shape) -> Shape:
        shape = convolved(node, x, channels_of_group(node, x))
        expect_tensor(node, "bias", shape[:1])
        _expect_range(node, x)
        return shape

    def reference(self, node: Node, x: Float) -> Float:
        total: Array = spread(node.tensors["bias"], x.ndim - 1)
        for window, weight in taps_of(pad(x, node, 0), node, real_weight(node)):
            n, groups, depth, *size = window.shape
            outputs = len(node.tensors["bias"])
            total = np.broadcast_to(total, (n, outputs, *size)).reshape(n, groups, outputs // groups, *size)
            for c in range(depth):
                tap = weight[..., c].reshape(*weight.shape[:2], *[1] * len(size))
                total = fma(window[:, :, None, c], tap, total)
            total = total.reshape(n, outputs, *size)
        return total

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        weight = _onnx_weight(b, node, onnx_kernel(b, x, node.tensors["weight"]))
        b.emit("Conv", [x, weight, _onnx_bias(b, node)], node.name, onnx_convolution(b, node, x))

    def rows(self, node: Node, place: Place) -> Instruction:
        weight = real_weight(node)
        return Instruction.of(
            "conv",
            source=place.sources[0],
            window=place.window(node, weight.shape[1:3]),
            maps=place.maps,
            groups=node.attributes["groups"],
            weight=weight,
            bias=node.tensors["bias"],
        )


def _expect_empty_tail(node: Node, channels: int) -> None:
    used = channels % WORD_BITS
    if used and (node.tensors["weight"][..., -1] >> np.uint64(used)).any():
        raise bad(node, f"weight words with bits {used} to {WORD_BITS - 1} of the last one 0", "others")


class BinaryConv2d(Weighted):
    inputs = (BIT,)
    dtype = "int32"
    tensors = _SIGNS
    attributes = (*SLIDING, "pad_value")

    def infer(self, node: Node, x: Shape) -> Shape:
        if node.attributes["pad_value"] not in (-1, 0, 1):
            raise bad(node, "pad_value -1, 0 or 1", repr(node.attributes["pad_value"]))
        channels = channels_of_group(node, x)
        shape = convolved(node, x, words_for(channels))
        _expect_empty_tail(node, channels)
        return shape

    def reference(self, node: Node, x: NDArray[np.int8]) -> NDArray[np.int32]:
        weights = unpack_signs(node.tensors["weight"], x.shape[1] // node.attributes["groups"])
        padded = pad(x, node, node.attributes["pad_value"])
        return sums_of_products(node, padded, weights, np.float32).astype(np.int32)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        depth = b.shape(x)[0] // node.attributes["groups"]
        signs = onnx_kernel(b, x, unpack_signs(node.tensors["weight"], depth))
        attributes = onnx_convolution(b, node, x)
        if node.attributes["pad_value"]:
            x, attributes = onnx_padded(b, node, x, attributes, node.attributes["pad_value"])
        b.emit("Conv", [x, b.signs(signs, f"{node.name}:weight")], node.name, attributes)

    def rows(self, node: Node, place: Place) -> Instruction:
        channels = place.shapes[0][0] // node.attributes["groups"]
        return Instruction.of(
            "binary_conv",
            source=place.sources[0],
            window=place.window(node, node.tensors["weight"].shape[1:3]),
            maps=place.maps,
            groups=node.attributes["groups"],
            in_channels=channels,
            weight=_words(node.tensors["weight"], channels),
            pad_value=node.attributes["pad_value"],
        )


def onnx_pixels(b: Onnx, x: str, weight: str, dimensions: int, output: str | None = None) -> str:
    """Weight (O, F) times x (N, F, ...), of so many dimensions without the batch: (N, O, ...)."""
    letters = "cdefgh"[: dimensions - 1]
    return b.emit("Einsum", [weight, x], output, {"equation": f"oi,ni{letters}->no{letters}"})


class Linear(OverPixels):
    of = Conv2d()
    tensors = _REAL

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        weight = _onnx_weight(b, node, node.tensors["weight"])
        if len(b.shape(x)) == 1:
            b.emit("Gemm", [x, weight, _onnx_bias(b, node)], node.name, {"transB": 1})
            return
        dimensions = len(b.shape(x))
        bias = onnx_channels(b, node, "bias", dimensions)
        b.emit("Add", [onnx_pixels(b, x, weight, dimensions), bias], node.name)


class BinaryLinear(OverPixels):
    of = BinaryConv2d()
    inputs = (BIT,)
    dtype = "int32"
    tensors = _SIGNS

    def infer(self, node: Node, x: Shape) -> Shape:
        weight = node.tensors["weight"].shape
        if len(weight) != 2 or weight[1] != words_for(x[0]):
            raise bad(
                node, "an input shaped (F, ...) and a weight shaped (O, ceil(F / 64))", f"{x} and {weight}"
            )
        _expect_empty_tail(node, x[0])
        return (weight[0], *x[1:])

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        signs = unpack_signs(node.tensors["weight"], b.shape(x)[0])
        if len(b.shape(x)) == 1:
            b.emit("MatMul", [x, b.signs(signs.T, f"{node.name}:weight")], node.name)
        else:
            onnx_pixels(b, x, b.signs(signs, f"{node.name}:weight"), len(b.shape(x)), node.name)


def _parts(node: Node, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the matrices (N, groups, maps, M, K) and (N, groups, maps, K, columns)."""
    groups = node.attributes["groups"]
    rows, columns = (v.reshape(len(v), groups, -1, *v.shape[2:]).transpose(0, 1, 3, 4, 2) for v in (x, y))
    return rows, columns.swapaxes(-1, -2) if node.attributes["transposed"] else columns


class Matmul(Rows):
    inputs = (FLOAT, FLOAT)
    attributes = ("groups", "transposed")

    def infer(self, node: Node, x: Shape, y: Shape) -> Shape:
        groups, transposed = node.attributes["groups"], node.attributes["transposed"]
        if not isinstance(groups, int) or groups < 1 or transposed not in (0, 1):
            raise bad(node, "groups of 1 or more, transposed 0 or 1", f"{groups!r} and {transposed!r}")
        summed = x[0] // groups
        if len(x) != 3 or len(y) != 3 or x[1] != y[1] or x[0] % groups or y[0] % groups:
            raise bad(node, f"two inputs (channels of {groups} groups, maps, pixels)", f"{x} and {y}")
        if (y[0] // groups if transposed else y[2]) != summed:
            raise bad(node, f"a second input with {summed} to sum over", str(y))
        return (groups * y[2] if transposed else y[0], *x[1:])

    def reference(self, node: Node, x: Float, y: Float) -> Float:
        """Each group of channels of each map by itself; a sum starts at 0, one fma a channel, in order."""
        a, b = _parts(node, x, y)
        total = np.zeros(
            (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32
        )
        for k in range(a.shape[-1]):
            total = fma(a[..., k, None], b[..., k, None, :], total)
        return total.transpose(0, 1, 4, 2, 3).reshape(len(total), -1, *x.shape[2:])

    def onnx(self, b: Onnx, node: Node, x: str, y: str) -> None:
        groups = node.attributes["groups"]
        (_, maps, rows), (_, _, pixels) = b.shape(x), b.shape(y)

        def matrices(v: str, length: int, order: list[int]) -> str:
            shape = b.constant(np.array([0, groups, -1, maps, length]), f"{node.name}:shape")
            return b.emit("Transpose", [b.emit("Reshape", [v, shape])], attributes={"perm": order})

        second = [0, 1, 3, 2, 4] if node.attributes["transposed"] else [0, 1, 3, 4, 2]
        product = b.emit("MatMul", [matrices(x, rows, [0, 1, 3, 4, 2]), matrices(y, pixels, second)])
        back = b.emit("Transpose", [product], attributes={"perm": [0, 1, 4, 2, 3]})
        shape = b.constant(np.array([0, -1, maps, rows]), f"{node.name}:shape")
        b.emit("Reshape", [back, shape], node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of(
            "matmul",
            source=place.sources[0],
            other=place.sources[1],
            groups=node.attributes["groups"],
            maps=place.shape[1],
            rows=place.shape[2],
            depth=place.shapes[0][0] // node.attributes["groups"],
            columns=place.shape[0] // node.attributes["groups"],
            transposed=node.attributes["transposed"],
        )

    def macs(self, node: Node, x: Shape, y: Shape) -> int:
        return prod(y) * x[0] // int(node.attributes["groups"])
