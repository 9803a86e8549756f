"""Transposed convolutions, made of others.

Along a side of stride s and dilation d, place q s + r of the result, the padding included, is the sum of
x[i] weight[k] with i s + k d = q s + r. So each of the s phases r is a convolution by some of the taps, the
last first, whose results are put side by side: one convolution of more channels where the phases read the
same places.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators import layers, shapes
from bitfactor.exporter.operators.volumes import conv3d, numbers
from bitfactor.exporter.view import View


@dataclass(frozen=True)
class _Phase:
    """Taps in the order in which they read, and how far beyond the input they do, before and after it."""

    taps: tuple[int, ...]
    near: int
    far: int


@dataclass(frozen=True)
class _Side:
    """A side of `length` places, cut out from `start` on of the results of the phases, `count` of each."""

    phases: tuple[_Phase | None, ...]
    count: int
    start: int
    length: int
    spread: int

    @classmethod
    def of(cls, size: int, taps: int, stride: int, padding: int, extra: int, dilation: int) -> "_Side":
        length = (size - 1) * stride - 2 * padding + dilation * (taps - 1) + 1 + extra
        first, last = padding // stride, (padding + length - 1) // stride
        spread = dilation // math.gcd(stride, dilation)
        phases: list[_Phase | None] = []
        for r in range(stride):
            own = [k for k in range(taps) if (k * dilation - r) % stride == 0]
            if own:
                latest = (r - own[0] * dilation) // stride
                earliest = latest - spread * (len(own) - 1)
                phases.append(_Phase(tuple(own[::-1]), -first - earliest, last + latest - size + 1))
            else:
                phases.append(None)
        return cls(tuple(phases), last - first + 1, padding - first * stride, length, spread)

    @property
    def alike(self) -> bool:
        """Whether one convolution gives all phases."""
        return len({phase and (len(phase.taps), phase.near, phase.far) for phase in self.phases}) == 1


_Convolve = Callable[[View, Tensor, list[int], list[int], list[int]], View]


@dataclass(frozen=True)
class _Transposed:
    """`convolve` takes the input, kernels (groups * phases * O / groups, ...), padding and dilation."""

    b: Builder
    x: View
    weight: Tensor
    groups: int
    sides: Sequence[_Side]
    convolve: _Convolve

    def result(self) -> View:
        if all(side.alike for side in self.sides):
            y = self._of([side.phases for side in self.sides])
        else:
            y = self._interleaved(())
        for i, side in enumerate(self.sides):
            y = shapes.slice_(self.b, y, 2 + i, side.start, side.start + side.length)
        return y

    def _interleaved(self, chosen: tuple[_Phase | None, ...]) -> Any:
        """Return the result for one phase of each of the first sides, and all of the others."""
        axis = len(chosen)
        if axis == len(self.sides):
            if None in chosen:
                outputs = self.groups * self.weight.shape[1]
                return torch.zeros(self.x.shape[0], outputs, *(side.count for side in self.sides))
            return self._of([(phase,) for phase in chosen])
        parts = [self._interleaved((*chosen, phase)) for phase in self.sides[axis].phases]
        if all(isinstance(part, Tensor) for part in parts):
            return torch.stack(parts, 3 + axis).flatten(2 + axis, 3 + axis)
        y = shapes.stack(self.b, parts, 3 + axis)
        shape = list(y.shape)
        return self.b.reshaped(y, [*shape[: 2 + axis], shape[2 + axis] * shape[3 + axis], *shape[4 + axis :]])

    def _of(self, phases: Sequence[Sequence[_Phase | None]]) -> View:
        """Return the result for these phases of each side, which read the same places."""
        some = [side[0] for side in phases]
        x, near, far = self.x, [], []
        for i, phase in enumerate(some):
            assert phase is not None
            x = shapes.slice_(self.b, x, 2 + i, max(-phase.near, 0), x.shape[2 + i] - max(-phase.far, 0))
            near.append(max(phase.near, 0))
            far.append(max(phase.far, 0))
        y = self.convolve(x, self._kernels(phases), near, far, [side.spread for side in self.sides])
        n, counts = len(phases), [len(side) for side in phases]
        batch, _, *sizes = y.shape
        y = self.b.reshaped(y, (batch, self.groups, *counts, self.weight.shape[1], *sizes))
        order = [0, 1, 2 + n, *(axis for i in range(n) for axis in (3 + n + i, 2 + i))]
        together = (m * count for m, count in zip(sizes, counts, strict=True))
        return self.b.reshaped(
            shapes.permute(self.b, y, order), (batch, self.groups * self.weight.shape[1], *together)
        )

    def _kernels(self, phases: Sequence[Sequence[_Phase | None]]) -> Tensor:
        """(C, O / groups, *kernel) -> (groups * phases * O / groups, C / groups, *taps)."""
        weight, n = self.weight, len(phases)
        inputs, outputs = weight.shape[:2]
        for i, side in enumerate(phases):
            taps = torch.tensor([phase.taps for phase in side if phase])
            chosen = weight.index_select(2 + 2 * i, taps.flatten())
            weight = chosen.reshape(*weight.shape[: 2 + 2 * i], *taps.shape, *weight.shape[3 + 2 * i :])
        parts = weight.reshape(self.groups, inputs // self.groups, outputs, *weight.shape[2:])
        order = [0, *(3 + 2 * i for i in range(n)), 2, 1, *(4 + 2 * i for i in range(n))]
        return parts.permute(order).flatten(0, n + 1)


def _sides(x: View, weight: Tensor, *geometry: Any) -> list[_Side]:
    """Return the sides of a result; the geometry is stride, padding, output padding and dilation."""
    each = [numbers(value, weight.ndim - 2) for value in geometry]
    return [_Side.of(*side) for side in zip(x.shape[2:], weight.shape[2:], *each, strict=True)]


def conv_transposed(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> View:  # fmt: skip
    """With its taps filled up with zeros, so that all phases are alike."""
    weight = _dilated(weight, numbers(dilation, weight.ndim - 2))
    short = [-k % s for k, s in zip(weight.shape[2:], numbers(stride, weight.ndim - 2), strict=True)]
    weight = torch.nn.functional.pad(weight, [m for count in reversed(short) for m in (0, count)])
    extra = [more - m for more, m in zip(numbers(output_padding, len(short)), short, strict=True)]

    def convolve(x: View, kernels: Tensor, near: list[int], far: list[int], spread: list[int]) -> View:
        count = kernels.shape[0] // (groups * weight.shape[1])
        repeated = None if bias is None else bias.reshape(groups, 1, -1).expand(-1, count, -1).reshape(-1)
        if len(near) < 3:
            return layers.conv_sided(b, x, kernels, repeated, near, far, groups)
        x = shapes.pad(b, x, _last_first(near, far))
        return conv3d(b, x, kernels, repeated, groups=groups)

    return _Transposed(b, x, weight, groups, _sides(x, weight, stride, padding, extra, 1), convolve).result()


def binary_conv_transposed(
    b: Builder, x: View, weight: Tensor, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> View:  # fmt: skip
    """A tap or an input that is not there is neither -1 nor +1: the sum goes without it."""

    def convolve(x: View, kernels: Tensor, near: list[int], far: list[int], spread: list[int]) -> View:
        sides = _last_first(near, far)
        return b.real(layers.binary_conv(b, x, kernels, [1] * len(near), sides, spread, groups, 0))

    sides = _sides(x, weight, stride, padding, output_padding, dilation)
    return _Transposed(b, x, weight, groups, sides, convolve).result()


def _last_first(near: list[int], far: list[int]) -> list[int]:
    """Return the widths as torch.nn.functional.pad takes them."""
    return [n for pair in reversed([*zip(near, far, strict=True)]) for n in pair]


def _dilated(weight: Tensor, spread: Sequence[int]) -> Tensor:
    for i, d in enumerate(spread):
        if d > 1:
            length = (weight.shape[2 + i] - 1) * d + 1
            wide = weight.new_zeros(*weight.shape[: 2 + i], length, *weight.shape[3 + i :])
            wide.index_copy_(2 + i, torch.arange(0, length, d), weight)
            weight = wide
    return weight


def col2im(b: Builder, x: View, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
           padding: Sequence[int], stride: Sequence[int]) -> View:  # fmt: skip
    """Add windows up: those that tile the map are put side by side, others are a transposed convolution."""
    n, channels, _ = x.shape
    if list(kernel) != list(stride) or any(padding) or list(dilation) != [1, 1]:
        return _overlapping(b, x, *map(tuple, (size, kernel, dilation, padding, stride)))
    (kh, kw), h, w = kernel, size[0] // kernel[0], size[1] // kernel[1]
    parts = b.reshaped(x, (n, channels // (kh * kw), kh, kw, h, w))
    y = b.reshaped(shapes.permute(b, parts, (0, 1, 4, 2, 5, 3)), (n, channels // (kh * kw), h * kh, w * kw))
    return shapes.pad(b, y, (0, size[1] - w * kw, 0, size[0] - h * kh))


def _overlapping(b: Builder, x: View, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int],
                 padding: Sequence[int], stride: Sequence[int]) -> View:  # fmt: skip
    """Each channel of a window is a tap of its own."""
    sides = zip(size, kernel, dilation, padding, stride, strict=True)
    room = [n + 2 * p - d * (k - 1) - 1 for n, k, d, p, _ in sides]
    counts = [m // s + 1 for m, s in zip(room, stride, strict=True)]
    taps = math.prod(kernel)
    channels = x.shape[1] // taps
    weight = torch.eye(taps).reshape(taps, 1, *kernel).repeat(channels, 1, 1, 1)
    maps = b.reshaped(x, (*x.shape[:2], *counts))
    extra = [m % s for m, s in zip(room, stride, strict=True)]
    return conv_transposed(b, maps, weight, None, stride, padding, extra, channels, dilation)
