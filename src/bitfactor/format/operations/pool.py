"""Pools: over windows, over all pixels, over all channels; and interpolation."""

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from bitfactor.format.operations.operation import (
    Array,
    Float,
    Node,
    Onnx,
    Place,
    Rows,
    Shape,
    bad,
    expect_map,
    exponential,
    fma,
    integers,
    onnx_window,
    pad,
    sum_of_channels,
    window_size,
    windows,
)
from bitfactor.format.program import Instruction


class _Pool(Rows):
    """A pool over windows."""

    attributes: tuple[str, ...] = ("kernel", "stride", "padding")

    def infer(self, node: Node, x: Shape) -> Shape:
        kernel = integers(node, "kernel", 2, 1)
        padding = integers(node, "padding", 4, 0)
        if any(padding[i] >= kernel[i % 2] for i in range(4)):
            raise bad(node, f"padding smaller than the kernel {kernel}", str(padding))
        return (x[0], *window_size(node, x, (kernel[0], kernel[1]), (1, 1)))

    def rows(self, node: Node, place: Place) -> Instruction:
        window = place.window(node, node.attributes["kernel"])
        return Instruction.of(
            self.kind,
            source=place.sources[0],
            window=window,
            maps=place.maps,
            channels=place.shape[0],
            **self._more(node),
        )

    def _more(self, node: Node) -> dict[str, Any]:
        """Return what else the instruction says."""
        return {}


class MaxPool2d(_Pool):
    kind = "max_pool"

    def reference(self, node: Node, x: Float) -> Float:
        """A window that lies in the padding alone gives minus infinity."""
        first, *others = windows(pad(x, node, -np.inf), node.attributes["kernel"], node.attributes["stride"])
        return reduce(_larger, (first, *others), np.full_like(first, -np.inf))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        b.emit("MaxPool", [x], node.name, onnx_window(b, node, x, node.attributes["kernel"]))


def counted_taps(node: Node, x: Shape) -> Array:
    """Return over how many values each pixel of an average pool is a mean, (1, 1, H', W')."""
    inside = pad(np.ones((1, 1, *x[-2:]), np.int64), node, 0)
    if node.attributes["count_include_pad"]:
        inside = np.ones_like(inside)
    return np.asarray(sum(windows(inside, node.attributes["kernel"], node.attributes["stride"])))


class AvgPool2d(_Pool):
    kind = "avg_pool"
    attributes = (*_Pool.attributes, "count_include_pad")

    def infer(self, node: Node, x: Shape) -> Shape:
        if node.attributes["count_include_pad"] not in (0, 1):
            raise bad(node, "count_include_pad 0 or 1", repr(node.attributes["count_include_pad"]))
        return super().infer(node, x)

    def reference(self, node: Node, x: Float) -> Float:
        taps = windows(pad(x, node, 0), node.attributes["kernel"], node.attributes["stride"])
        total = sum(taps, np.float32(0))
        return np.asarray(total / counted_taps(node, x.shape).astype(np.float32))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        counted = {"count_include_pad": node.attributes["count_include_pad"]}
        b.emit("AveragePool", [x], node.name, onnx_window(b, node, x, node.attributes["kernel"]) | counted)

    def _more(self, node: Node) -> dict[str, Any]:
        padding, counted = node.attributes["padding"], node.attributes["count_include_pad"]
        return {"far_padding": padding[2:], "count_include_pad": counted}


class GlobalAvgPool(Rows):
    kind = "global_avg_pool"

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_map(node, x)
        return (x[0], 1, 1)

    def reference(self, node: Node, x: Float) -> Float:
        pixels = x.reshape(*x.shape[:2], -1)
        total = np.zeros(x.shape[:2], np.float32)
        for i in range(pixels.shape[2]):
            total = total + pixels[:, :, i]
        return (total / np.float32(pixels.shape[2]))[:, :, None, None]

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        """Over all maps at once, where there are several."""
        if len(b.shape(x)) == 3:
            b.emit("GlobalAveragePool", [x], node.name)
        else:
            shape = b.constant(np.array([0, 0, 1, 1]), f"{node.name}:shape")
            b.emit("Reshape", [b.emit("GlobalAveragePool", [x]), shape], node.name)


class Softmax(Rows):
    kind = "softmax"
    onnx_op = "Softmax"
    onnx_attributes = {"axis": 1}

    def reference(self, node: Node, x: Float) -> Float:
        """The exponentials over their sum; NaN where a difference is, which `exponential` would hide.

        What is 87 or more below the largest, as a masked place is, has 0: its sign would count.
        """
        with np.errstate(invalid="ignore"):  # of infinities
            apart = x - x.max(1, keepdims=True)
        exponentials = np.where(apart > -87, exponential(apart), np.float32(0))
        total = np.where(np.isnan(apart).any(1), np.float32(np.nan), np.float32(0))
        for c in range(x.shape[1]):
            total = total + exponentials[:, c]
        return np.asarray(exponentials / total[:, None])


def _larger(x: Float, y: Float) -> Float:
    """Return the larger number; of equal ones, as 0 and -0 are, the first."""
    return np.where(y > x, y, x)


def _smaller(x: Float, y: Float) -> Float:
    return np.where(y < x, y, x)


_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


class _Reduction(Rows):
    """The mean, sum, maximum or minimum of what lies along some axes."""

    attributes = ("how",)

    def infer(self, node: Node, x: Shape) -> Shape:
        if node.attributes["how"] not in _REDUCTIONS:
            raise bad(node, f"how as one of {', '.join(_REDUCTIONS)}", repr(node.attributes["how"]))
        return x

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        axes = [1] if node.op == "reduce_channels" else list(range(2, len(b.shape(x)) + 1))
        if not axes:
            b.emit("Identity", [x], node.name)
            return
        op = _REDUCTIONS[node.attributes["how"]]
        b.emit(op, [x, b.constant(np.array(axes), f"{node.name}:axes")], node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        how = list(_REDUCTIONS).index(node.attributes["how"])
        return Instruction.of(node.op, source=place.sources[0], how=how)


def _reduced(how: str, x: Float, total: Float) -> Float:
    """Reduce axis 1. `total` is its sum."""
    if how in ("max", "min"):
        first, *others = (x[:, i : i + 1] for i in range(x.shape[1]))
        return reduce(_larger if how == "max" else _smaller, others, first)
    return total / np.float32(x.shape[1]) if how == "mean" else total


class ReducePixels(_Reduction):
    def infer(self, node: Node, x: Shape) -> Shape:
        return (super().infer(node, x)[0], *[1] * (len(x) - 1))

    def reference(self, node: Node, x: Float) -> Float:
        """Sums are in the order of the pixels."""
        pixels = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)  # (N, pixels, C)
        total = np.zeros_like(pixels[:, :1])
        if node.attributes["how"] in ("mean", "sum"):
            for i in range(pixels.shape[1]):
                total = total + pixels[:, i : i + 1]
        y = _reduced(node.attributes["how"], pixels, total)
        return y.reshape(*x.shape[:2], *[1] * (x.ndim - 2))


class ReduceChannels(_Reduction):
    def infer(self, node: Node, x: Shape) -> Shape:
        return (1, *super().infer(node, x)[1:])

    def reference(self, node: Node, x: Float) -> Float:
        return _reduced(node.attributes["how"], x, sum_of_channels(x))


class LayerNorm(Rows):
    attributes = ("eps",)

    def infer(self, node: Node, x: Shape) -> Shape:
        if not isinstance(node.attributes["eps"], float) or not node.attributes["eps"] >= 0:
            raise bad(node, "eps as a number of 0 or more", repr(node.attributes["eps"]))
        return x

    def reference(self, node: Node, x: Float) -> Float:
        """(x - mean) / sqrt(variance + eps), both over the channels of a pixel."""
        count = np.float32(x.shape[1])
        apart = x - sum_of_channels(x) / count
        variance = sum_of_channels(apart * apart) / count
        y: Float = apart * (np.float32(1) / np.sqrt(variance + np.float32(node.attributes["eps"])))
        return y

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        axes = b.constant(np.array([1]), "integer:1")
        apart = b.emit("Sub", [x, b.emit("ReduceMean", [x, axes])])
        variance = b.emit("ReduceMean", [b.emit("Mul", [apart, apart]), axes])
        deviation = b.emit("Sqrt", [b.emit("Add", [variance, b.number(node.attributes["eps"])])])
        b.emit("Div", [apart, deviation], node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of("layer_norm", source=place.sources[0], eps=node.attributes["eps"])


def _taps(node: Node, axis: int, before: int, after: int) -> tuple[Array, Array, Float]:
    """Return the two places that each place is made of, and the weight of the second."""
    scale = node.attributes["scale"][axis]
    step = np.float32(before / after if node.attributes["size"][axis] else 1 / scale)
    places = np.arange(after, dtype=np.float32)
    if node.attributes["align_corners"]:
        step = np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.float32(0)
        places = places * step
    else:
        places = np.maximum(step * (places + np.float32(0.5)) - np.float32(0.5), np.float32(0))
    first = np.minimum(places.astype(np.int32), before - 1)
    return first, np.minimum(first + 1, before - 1), (places - first).astype(np.float32)


def _matrix(node: Node, axis: int, before: int, after: int) -> Float:
    first, second, weight = _taps(node, axis, before, after)
    matrix = np.zeros((after, before), np.float32)
    np.add.at(matrix, (np.arange(after), first), 1 - weight)
    np.add.at(matrix, (np.arange(after), second), weight)
    return matrix


class ResizeBilinear(Rows):
    attributes = ("size", "scale", "align_corners")

    def infer(self, node: Node, x: Shape) -> Shape:
        """`size` is that of the result, or 0 where `scale` says how many times as large it is."""
        if len(x) < 3:
            raise bad(node, "a map of pixels", str(x))
        size, scale = integers(node, "size", 2, 0), node.attributes["scale"]
        if (
            not isinstance(scale, tuple)
            or len(scale) != 2
            or not all(isinstance(f, float) and f >= 0 for f in scale)
        ):
            raise bad(node, "scale as two numbers", repr(scale))
        if node.attributes["align_corners"] not in (0, 1):
            raise bad(node, "align_corners 0 or 1", repr(node.attributes["align_corners"]))
        sides = tuple(n or int(m * f) for n, m, f in zip(size, x[-2:], scale, strict=True))
        if min(sides) < 1:
            raise bad(node, "a size of 1 or more", f"{sides} of {x}")
        return (*x[:-2], *sides)

    def reference(self, node: Node, x: Float) -> Float:
        """Rows first: y0 + w (y1 - y0) of each, then columns likewise."""
        *_, height, width = self.infer(node, x.shape[1:])
        top, bottom, down = _taps(node, 0, x.shape[-2], height)
        left, right, along = _taps(node, 1, x.shape[-1], width)
        upper, lower = x[..., top, :], x[..., bottom, :]
        rows = fma(np.broadcast_to(down[:, None], upper.shape), lower - upper, upper)
        first, second = rows[..., left], rows[..., right]
        return fma(np.broadcast_to(along, first.shape), second - first, first)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        """As a product with the weights of all rows, then of all columns: Resize takes no map of maps."""
        *_, height, width = b.shape(node.name)
        *_, h, w = b.shape(x)
        y = b.emit("MatMul", [b.constant(_matrix(node, 0, h, height), f"{node.name}:rows"), x])
        b.emit("MatMul", [y, b.constant(_matrix(node, 1, w, width).T, f"{node.name}:columns")], node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        *maps, h, w = place.shapes[0][1:]
        *_, height, width = place.shape
        (top, bottom, down), (left, right, along) = _taps(node, 0, h, height), _taps(node, 1, w, width)
        return Instruction.of(
            "resize_bilinear",
            source=place.sources[0],
            in_size=(h, w),
            maps=prod(maps),
            channels=place.shape[0],
            top=top, bottom=bottom, down=down, left=left, right=right, along=along,
        )  # fmt: skip
