"""Operators that change the size of a map, or sum up over dimensions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.layers import sizes_of
from bitfactor.exporter.operators.pointwise import add, mul, power, sub
from bitfactor.exporter.operators.shapes import cat, slice_, taken
from bitfactor.exporter.view import View, size


def _window(b: Builder, x: View, sides: int, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    height, width = sizes_of(padding, sides, 0)
    return {
        "kernel": sizes_of(kernel, sides, 1),
        "stride": sizes_of(stride or kernel, sides, 1),
        "padding": (height, width, height, width),
    }


def _pool(b: Builder, op: str, x: View, attributes: dict[str, Any]) -> View:
    sides = len(x.dims) - 2
    return b.of_maps(x, b.emit(op, [b.maps(b.real(x), sides)], attributes), sides)


def max_pool(
    b: Builder, x: View, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil: bool = False,
) -> View:  # fmt: skip
    if len(x.dims) == 5:
        return _in_turn(b, max_pool, x, kernel, stride, padding, ceil=ceil)
    if sizes_of(dilation, 2, 1) != (1, 1):
        raise b.refused("max pooling without dilation", str(dilation), "leave it out")
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    return _pool(b, "max_pool2d", x, _ceiled(x, window) if ceil else window)


def _three(value: Any) -> list[int]:
    return [value] * 3 if isinstance(value, int) else list(value) * (3 // len(value))


def _in_turn(b: Builder, pool: Any, x: View, kernel: Any, stride: Any, padding: Any, **more: Any) -> View:
    """Pool volumes (N, C, D, H, W): over height and width, then over depth."""
    k, s, p = _three(kernel), _three(stride or kernel), _three(padding)
    n, channels, depth, *_ = x.shape
    frames = b.reshaped(
        replace(x, dims=(*x.dims[:1], *x.dims[2:3], x.dims[1], *x.dims[3:])),
        (n * depth, channels, *x.shape[3:]),
    )
    y = pool(b, frames, k[1:], s[1:], p[1:], **more)
    _, _, height, width = y.shape
    apart = b.reshaped(y, (n, depth, channels, height * width))
    lines = replace(apart, dims=(apart.dims[0], apart.dims[2], apart.dims[1], apart.dims[3]))
    y = pool(b, lines, [k[0], 1], [s[0], 1], [p[0], 0], **more)
    return b.reshaped(y, (n, channels, y.shape[2], height, width))


def _ceiled(x: View, window: dict[str, Any]) -> dict[str, Any]:
    """Pad on the far side where ceil_mode has one more window, which begins inside of the map."""
    padding = list(window["padding"])
    for i, length in enumerate((1, *x.shape[2:])[-2:]):
        kernel, stride, near = window["kernel"][i], window["stride"][i], padding[i]
        count = -(-(length + 2 * near - kernel) // stride) + 1
        count -= (count - 1) * stride >= length + near
        padding[2 + i] = max((count - 1) * stride + kernel - length - near, near)
    return window | {"padding": tuple(padding)}


def avg_pool(
    b: Builder, x: View, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> View:  # fmt: skip
    if len(x.dims) == 5:
        y = _in_turn(b, avg_pool, x, kernel, stride, padding, ceil=ceil, count_include_pad=count_include_pad)
        return y if divisor is None else mul(b, y, math.prod(_three(kernel)) / divisor)
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    if ceil and _ceiled(x, window) != window:
        if count_include_pad and any(window["padding"]):
            raise b.refused("average pooling with ceil_mode or padding", "both", "count_include_pad=False")
        window, count_include_pad = _ceiled(x, window), False
    if divisor is not None:
        y = _pool(b, "avg_pool2d", x, window | {"count_include_pad": 1})
        return mul(b, y, math.prod(window["kernel"]) / divisor)
    return _pool(b, "avg_pool2d", x, window | {"count_include_pad": int(count_include_pad)})


def adaptive_avg_pool(b: Builder, x: View, size: Any) -> View:
    return _adaptive(b, "mean", avg_pool, x, size)


def adaptive_max_pool(b: Builder, x: View, size: Any) -> list[View | None]:
    """Lower to the maxima; their places, which torch gives as well, the file does not hold."""
    return [_adaptive(b, "max", max_pool, x, size), None]


def _adaptive(b: Builder, how: str, pool: Callable[..., View], x: View, size: Any) -> View:
    """A pool whose windows are equal, or else one side after the other."""
    sides = x.shape[2:]
    given = list(size) if isinstance(size, Sequence) else [size] * len(sides)
    wanted = [n if want is None else want for want, n in zip(given, sides, strict=True)]
    if all(n == 1 for n in wanted):
        return reduced(b, how, x, range(2, len(x.dims)), True)
    if not any(n % want for n, want in zip(sides, wanted, strict=True)):
        return pool(b, x, [n // want for n, want in zip(sides, wanted, strict=True)])
    for i, (n, want) in enumerate(zip(sides, wanted, strict=True)):
        ends = [(j * n // want, -(-(j + 1) * n // want)) for j in range(want)]
        x = cat(b, [reduced(b, how, slice_(b, x, 2 + i, *end), [2 + i], True) for end in ends], 2 + i)
    return x


def mean(b: Builder, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    return reduced(b, "mean", x, dims, keepdim)


def total(b: Builder, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    return reduced(b, "sum", x, dims, keepdim)


def largest(b: Builder, x: View, dims: Any = None, keepdim: bool = False) -> View:
    return reduced(b, "max", x, dims, keepdim)


def smallest(b: Builder, x: View, dims: Any = None, keepdim: bool = False) -> View:
    return reduced(b, "min", x, dims, keepdim)


def largest_of_dim(b: Builder, x: View, dim: int, keepdim: bool = False) -> list[View | None]:
    """Lower to the maxima; their places the file does not hold."""
    return [largest(b, x, [dim], keepdim), None]


def smallest_of_dim(b: Builder, x: View, dim: int, keepdim: bool = False) -> list[View | None]:
    return [smallest(b, x, [dim], keepdim), None]


def reduced(b: Builder, how: str, x: View, dims: Any, keepdim: bool) -> View:
    """Reduce over dimensions: over all pixels where they are just that, else they become channels."""
    given = [dims] if isinstance(dims, int) else list(dims) if dims else range(len(x.dims))
    numbers = sorted(dim % len(x.dims) for dim in given)
    every = [axis for number in numbers for axis in x.dims[number]]
    repeats = size(axis for axis in every if x.is_repeated(axis)) if how == "sum" else 1
    over = tuple(axis for axis in every if not x.is_repeated(axis))
    x = b.real(x)
    channels = b.shape(x.name)[0]
    if over and set(x.memory[: len(over)]) == set(over) and size(x.memory[len(over) :]) == channels:
        if how == "mean" and len(b.shape(x.name)) == 3:
            name = b.emit("global_avg_pool", [x.name])
        else:
            name = b.emit("reduce_pixels", [x.name], {"how": how})
    elif over:
        over = tuple(axis for axis in x.memory if axis in over) or over
        name, _ = b.pixels(x, over)
        name = b.emit("reduce_channels", [name], {"how": how})
    else:
        name = x.name
    left = tuple(axis for axis in x.memory if axis not in over)
    kept = [() if i in numbers else dim for i, dim in enumerate(x.dims) if keepdim or i not in numbers]
    y = View(name, left, tuple(kept))
    return mul(b, y, float(repeats)) if repeats != 1 else y


def vector_norm(
    b: Builder, x: View, ord: float = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    if ord != 2:
        raise b.refused("the norm of order 2", f"order {ord}", "use sums")
    return b.alike("sqrt", total(b, power(b, x, 2), dims, keepdim))


def variance(b: Builder, x: View, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> View:
    given = [dims] if isinstance(dims, int) else list(dims) if dims else range(1, len(x.dims))
    apart = power(b, sub(b, x, mean(b, x, given, True)), 2)
    count = math.prod(x.shape[dim] for dim in given)
    factor = count / (count - float(1 if correction is None else correction))
    return mul(b, mean(b, apart, given, keepdim), factor)


def variance_unbiased(b: Builder, x: View, dims: Any, unbiased: bool = True, keepdim: bool = False) -> View:
    return variance(b, x, dims, int(unbiased), keepdim)


def upsample_nearest(b: Builder, x: View, size: Any = None, factors: Any = None) -> View:
    shape = x.shape[2:]
    scale = [s / n for s, n in zip(size, shape, strict=True)] if size else list(factors)
    if any(factor != int(factor) for factor in scale):
        wanted = [s if size else int(n * f) for s, n, f in zip(size or shape, shape, scale, strict=True)]
        for dim, (length, n) in enumerate(zip(wanted, shape, strict=True)):
            step = n / length if size else 1 / scale[dim]
            x = taken(b, x, dim + 2, [min(int(i * step), n - 1) for i in range(length)])
        return x
    whole = sizes_of([int(factor) for factor in scale], len(shape), 1)
    return b.of_maps(
        x, b.emit("upsample_nearest", [b.maps(b.real(x), len(shape))], {"scale": whole}), len(shape)
    )


def upsample_bilinear(b: Builder, x: View, size: Any, align_corners: bool, factors: Any = None) -> View:
    sides = len(x.dims) - 2
    attributes = {
        "size": sizes_of(size, sides, 1) if size else (0, 0),
        "scale": (0.0, 0.0) if size else (1.0, *map(float, factors))[-2:],
        "align_corners": int(align_corners),
    }
    return b.of_maps(x, b.emit("resize_bilinear", [b.maps(b.real(x), sides)], attributes), sides)


def rms_norm(
    b: Builder, x: View, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> View:
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    square = mean(b, mul(b, x, x), dims, True)
    factor = power(b, add(b, square, torch.finfo(torch.float32).eps if eps is None else eps), -0.5)
    y = mul(b, x, factor)
    return y if weight is None else mul(b, y, weight)
