"""Pooling of maps, lines and volumes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.layers import sizes_of
from bitfactor.exporter.operators.pointwise import NEVER, mul
from bitfactor.exporter.operators.reductions import largest, reduced
from bitfactor.exporter.operators.shapes import cat, pad, slice_, windows
from bitfactor.exporter.view import View


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
    if any(n > 1 for n in _each(dilation, len(x.dims) - 2)):
        return _dilated(b, x, kernel, stride or kernel, padding, dilation, ceil)
    if len(x.dims) == 5:
        return _in_turn(b, max_pool, x, kernel, stride, padding, ceil=ceil)
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    return _pool(b, "max_pool2d", x, _ceiled(x, window) if ceil else window)


def max_pool_with_places(b: Builder, *args: Any, **kwargs: Any) -> list[View | None]:
    """Lower to the maxima; their places, which torch gives as well, the file does not hold."""
    return [max_pool(b, *args, **kwargs), None]


def _dilated(
    b: Builder, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> View:  # fmt: skip
    """One side after the other: the largest of each window, whose places are apart."""
    sides = len(x.dims) - 2
    for i, (k, s, p, d) in enumerate(
        zip(*(_each(v, sides) for v in (kernel, stride, padding, dilation)), strict=True)
    ):
        length, reach = x.shape[2 + i], d * (k - 1) + 1
        left = length + 2 * p - reach
        count = (-(-left // s) if ceil else left // s) + 1
        count -= (count - 1) * s >= length + p
        far = max((count - 1) * s + reach - length - p, 0)
        y = pad(b, x, (*(0, 0) * (sides - 1 - i), p, far), value=NEVER)
        x = largest(b, windows(b, y, 2 + i, k, s, d), [-1])
    return x


def _each(value: Any, sides: int) -> list[int]:
    return [value] * sides if isinstance(value, int) else list(value) * (sides // len(value))


def _in_turn(b: Builder, pool: Any, x: View, kernel: Any, stride: Any, padding: Any, **more: Any) -> View:
    """Pool volumes (N, C, D, H, W): over height and width, then over depth."""
    k, s, p = (_each(value, 3) for value in (kernel, stride or kernel, padding))
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
        return y if divisor is None else mul(b, y, math.prod(_each(kernel, 3)) / divisor)
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    if ceil and _ceiled(x, window) != window:
        near, window = window["padding"], _ceiled(x, window)
        if count_include_pad and divisor is None and any(near):
            y = _pool(b, "avg_pool2d", x, window | {"count_include_pad": 1})
            return mul(b, y, _fewer(x, y, window, near))
        count_include_pad = False
    if divisor is not None:
        y = _pool(b, "avg_pool2d", x, window | {"count_include_pad": 1})
        return mul(b, y, math.prod(window["kernel"]) / divisor)
    return _pool(b, "avg_pool2d", x, window | {"count_include_pad": int(count_include_pad)})


def _fewer(x: View, y: View, window: dict[str, Any], padding: Sequence[int]) -> Tensor:
    """Return by how much the last windows of ceil_mode, beyond the padding, have fewer places, (H', W')."""
    parts: list[Tensor] = []
    for i, (length, count) in enumerate(zip((1, *x.shape[2:])[-2:], (1, *y.shape[2:])[-2:], strict=True)):
        starts = torch.arange(count) * window["stride"][i]
        inside = (starts + window["kernel"][i]).clamp(max=length + 2 * padding[i]) - starts
        parts.append(window["kernel"][i] / inside)
    return parts[0][:, None] * parts[1] if len(x.dims) == 4 else parts[1]


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
