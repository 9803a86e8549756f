"""Convolutions that are made of others: over three dimensions, and transposed ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators import layers, shapes
from bitfactor.exporter.operators.pointwise import add
from bitfactor.exporter.view import View


def _numbers(value: int | Sequence[int], count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value) * (count // len(value))


def conv3d(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> View:  # fmt: skip
    """A sum over the taps in depth; each is a convolution of frames."""
    (s, *strides), (p, *sides), (d, *spread) = (_numbers(v, 3) for v in (stride, padding, dilation))
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
    (s, *strides), (d, *spread) = _numbers(stride, 3), _numbers(dilation, 3)
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


def conv_transposed(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> View:  # fmt: skip
    """One convolution whose channels are the pixels that each pixel becomes, which then are put in place.

    Along a side of stride s, place q s + r of the result, the padding included, is the sum over j of
    x[q - j] weight[r + s j].
    """
    n = weight.ndim - 2
    strides, pads, extra, spread = (_numbers(v, n) for v in (stride, padding, output_padding, dilation))
    weight = _dilated(weight, spread)
    sides, near, far, crop, lengths = x.shape[2:], [], [], [], []
    for i in range(n):
        s, p, k = strides[i], pads[i], weight.shape[2 + i]
        taps, length = -(-k // s), (sides[i] - 1) * s - 2 * p + k + extra[i]
        first, end = p // s, -(-(p + length) // s)
        near.append(max(taps - 1 - first, 0))
        skipped = max(first - taps + 1, 0)
        far.append(max(end - first + skipped - sides[i] - near[i] + taps - 1, 0))
        crop.append(p - (first - skipped) * s)
        lengths.append(length)
    x = shapes.pad(b, x, [m for pair in reversed(list(zip(near, far, strict=True))) for m in pair])
    outputs = weight.shape[1]
    kernels = _phases(weight, strides, groups)
    phases = kernels.shape[0] // (groups * outputs)
    repeated = None if bias is None else bias.reshape(groups, 1, -1).expand(-1, phases, -1).reshape(-1)
    y = layers.conv(b, x, kernels, repeated, groups=groups)
    batch, _, *counts = y.shape
    y = b.reshaped(y, (batch, groups, *strides, outputs, *counts))
    order = [0, 1, 2 + n, *(axis for i in range(n) for axis in (3 + n + i, 2 + i))]
    y = b.reshaped(
        replace(y, dims=tuple(y.dims[i] for i in order)),
        (batch, groups * outputs, *(c * s for c, s in zip(counts, strides, strict=True))),
    )
    for i in range(n):
        y = shapes.slice_(b, y, 2 + i, crop[i], crop[i] + lengths[i])
    return y


def _dilated(weight: Tensor, spread: Sequence[int]) -> Tensor:
    for i, d in enumerate(spread):
        if d > 1:
            length = (weight.shape[2 + i] - 1) * d + 1
            wide = weight.new_zeros(*weight.shape[: 2 + i], length, *weight.shape[3 + i :])
            wide.index_copy_(2 + i, torch.arange(0, length, d), weight)
            weight = wide
    return weight


def _phases(weight: Tensor, strides: Sequence[int], groups: int) -> Tensor:
    """(C, O, *kernel) -> (groups * phases * O, C / groups, *taps): those of each phase, the last first."""
    n = len(strides)
    for i, s in enumerate(strides):
        short = -weight.shape[2 + i] % s
        weight = torch.nn.functional.pad(weight, (0, 0) * (n - 1 - i) + (0, short))
    inputs, outputs, *kernel = weight.shape
    split = [m for k, s in zip(kernel, strides, strict=True) for m in (k // s, s)]
    parts = weight.reshape(groups, inputs // groups, outputs, *split).flip([3 + 2 * i for i in range(n)])
    order = [0, *(4 + 2 * i for i in range(n)), 2, 1, *(3 + 2 * i for i in range(n))]
    taps = [k // s for k, s in zip(kernel, strides, strict=True)]
    return parts.permute(order).reshape(-1, inputs // groups, *taps)
