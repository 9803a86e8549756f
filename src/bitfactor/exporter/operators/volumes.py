"""Convolutions over three dimensions, made of those over two."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators import layers, shapes
from bitfactor.exporter.operators.pointwise import add
from bitfactor.exporter.view import View


def numbers(value: int | Sequence[int], count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value) * (count // len(value))


def conv3d(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> View:  # fmt: skip
    """A sum over the taps in depth; each is a convolution of frames."""
    (s, *strides), (p, *sides), (d, *spread) = (numbers(v, 3) for v in (stride, padding, dilation))
    x = shapes.pad(b, x, (0, 0, 0, 0, p, p))

    last = x.shape[2] - d * (weight.shape[2] - 1)
    parts = []
    for tap in range(weight.shape[2]):
        frames = _frames(b, x, tap * d, tap * d + last, s)
        own = bias if tap == 0 else None
        y = layers.conv(b, frames, weight[:, :, tap], own, strides, sides, spread, groups)
        parts.append(_volume(b, y, x.shape[0]))
    return _sum(b, parts)


def binary_conv3d(
    b: Builder, x: View, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, pad_value: int
) -> View:
    """As conv3d; where a tap is outside of the volume, and stands for 0, the sum goes without it."""
    (s, *strides), (d, *spread) = numbers(stride, 3), numbers(dilation, 3)
    *sides, before, after = padding
    if pad_value:
        x = shapes.pad(b, x, (0, 0, 0, 0, before, after), value=float(pad_value))
        before = after = 0
    depth, taps = x.shape[2], weight.shape[2]
    count = (before + depth + after - d * (taps - 1) - 1) // s + 1
    parts = []
    for tap in range(taps):
        # Result i reads frame i s + tap d - before, where that is one.
        first = max(0, -(-(before - tap * d) // s))
        end = min(count, (depth - 1 + before - tap * d) // s + 1)
        if first >= end:
            continue
        start = first * s + tap * d - before
        frames = _frames(b, x, start, start + (end - first - 1) * s + 1, s)
        sums = layers.binary_conv(b, frames, weight[:, :, tap], strides, sides, spread, groups, pad_value)
        y = _volume(b, b.real(sums), x.shape[0])
        parts.append(shapes.pad(b, y, (0, 0, 0, 0, first, count - end)))
    return _sum(b, parts)


def conv3d_padded(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> View:  # fmt: skip
    """As conv3d, padded by "same", which may have one more on the far side, or "valid"."""
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(numbers(dilation, 3), weight.shape[2:], strict=True)]
        x = shapes.pad(b, x, [n for t in reversed(total) for n in (t // 2, t - t // 2)])
    return conv3d(b, x, weight, bias, stride, 0, dilation, groups)


def _frames(b: Builder, x: View, start: int, stop: int, step: int) -> View:
    """Return some of the frames of a volume (N, C, D, H, W) as maps (N D, C, H, W)."""
    x = shapes.slice_(b, x, 2, start, stop, step)
    n, channels, depth, *sides = x.shape
    return b.reshaped(shapes.transpose(b, x, 1, 2), (n * depth, channels, *sides))


def _volume(b: Builder, maps: View, samples: int) -> View:
    """Undo `_frames`."""
    frames, *rest = maps.shape
    return shapes.transpose(b, b.reshaped(maps, (samples, frames // samples, *rest)), 1, 2)


def _sum(b: Builder, parts: Sequence[View]) -> View:
    total, *rest = parts
    for part in rest:
        total = add(b, total, part)
    return total
