"""Convolutions, linear layers and normalisations. One dimension is two with a height of one, three are some.

Transposed convolutions are made of others. A side has stride s and dilation d. Place q s + r of the result,
padding included, is the sum of x[i] weight[k] with i s + k d = q s + r. So each of the s phases r is a
convolution by some of the taps, the last first. Their results are put side by side, in one convolution of
more channels where the phases read the same places.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.exporter.builder import Builder, floats
from bitfactor.exporter.operators import shapes
from bitfactor.exporter.operators.functions import add
from bitfactor.exporter.view import Axes, View
from bitfactor.format import pack_signs


def numbers(value: int | Sequence[int], count: int) -> list[int]:
    """Return a number for each dimension, where one may stand for all."""
    return [value] * count if isinstance(value, int) else list(value) * (count // len(value))


def sides_of(padding: Any, kernel: Sequence[int], dilation: Any) -> tuple[list[int], list[int]]:
    """Return the padding before and after each side, where torch has a number, one per side, or a word.

    It is "same", which may have one more on the far side, or "valid".
    """
    count = len(kernel)
    if not isinstance(padding, str):
        return numbers(padding, count), numbers(padding, count)
    spread = numbers(dilation, count)
    total = [d * (k - 1) * (padding == "same") for d, k in zip(spread, kernel, strict=True)]
    return [n // 2 for n in total], [n - n // 2 for n in total]


def sizes_of(value: int | Sequence[int], dimensions: int, unused: int) -> tuple[int, int]:
    """Read a number, or one per dimension, as (height, width); one dimension has a height of `unused`."""
    values = numbers(value, dimensions)
    return (unused, values[0]) if dimensions == 1 else (values[0], values[1])


def _as_2d(weight: Tensor) -> Tensor:
    """(O, C, k) -> (O, C, 1, k)."""
    return weight.unsqueeze(2) if weight.ndim == 3 else weight


def _geometry(stride: Any, padding: Sequence[int], dilation: Any, groups: int, n: int) -> dict[str, Any]:
    """Attributes of a convolution of n dimensions; `padding` is (top, left, bottom, right)."""
    return {
        "stride": sizes_of(stride, n, 1),
        "padding": tuple(padding),
        "dilation": sizes_of(dilation, n, 1),
        "groups": groups,
    }


def _bits(weight: Tensor) -> NDArray[np.uint64]:
    return pack_signs(np.ascontiguousarray(weight.detach().cpu().numpy()))


def binary_conv(
    b: Builder, x: View, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, pad_value: int
) -> View:
    n = weight.ndim - 2
    left, right, top, bottom = [*padding, 0, 0][:4]
    attributes = _geometry(stride, (top, left, bottom, right), dilation, groups, n) | {"pad_value": pad_value}
    words = _bits(_as_2d(weight).permute(0, 2, 3, 1))
    return b.of_maps(x, b.emit("binary_conv2d", [b.sign(b.maps(x, n))], attributes, weight=words), n)


def binary_linear(b: Builder, x: View, weight: Tensor) -> View:
    name, view = b.pixels(x, x.dim(-1))
    return b.layered(view, -1, b.emit("binary_linear", [b.sign(name)], weight=_bits(weight)))


def conv(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> View:  # fmt: skip
    near, far = sides_of(padding, weight.shape[2:], dilation)
    return conv_sided(b, x, weight, bias, near, far, groups, stride, dilation)


def conv_sided(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None, near: list[int], far: list[int],
    groups: int, stride: Any = 1, dilation: Any = 1,
) -> View:  # fmt: skip
    """A convolution padded before and after each side."""
    if weight.ndim == 5:
        if near != far:
            x, near = shapes.pad(b, x, last_first(near, far)), [0] * len(near)
        return conv3d(b, x, weight, bias, stride, near, dilation, groups)
    n = weight.ndim - 2
    sides = (*sizes_of(near, n, 0), *sizes_of(far, n, 0))
    return b.on_maps(
        "conv2d",
        x,
        n,
        _geometry(stride, sides, dilation, groups, n),
        weight=floats(_as_2d(weight).permute(0, 2, 3, 1)),
        bias=floats(torch.zeros(len(weight)) if bias is None else bias),
    )


def linear(b: Builder, x: View, weight: Tensor, bias: Tensor | None = None) -> View:
    name, view = b.pixels(b.real(x), x.dim(-1))
    bias = torch.zeros(len(weight)) if bias is None else bias
    return b.layered(view, -1, b.emit("linear", [name], weight=floats(weight), bias=floats(bias)))


def batch_norm(
    b: Builder, x: View, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> View:  # fmt: skip
    """Read scale and shift off torch's own kernel, so that they carry its rounding."""
    if training or mean is None or var is None:
        raise b.refused(
            "a BatchNorm with running statistics",
            "one that normalises by the batch",
            "build it with track_running_stats=True",
        )

    def kernel(value: float, mean: Tensor, bias: Tensor | None) -> Tensor:
        return F.batch_norm(torch.full((1, len(var)), value), mean, var, weight, bias, False, 0.0, eps)[0]

    zeros = torch.zeros_like(mean)
    return scaled_by_channel(b, x, 1, kernel(1.0, zeros, None), kernel(0.0, mean, bias))


def batch_norm_alone(
    b: Builder, x: View, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor,
    momentum: float, eps: float,
) -> list[View | None]:  # fmt: skip
    """As torch writes a batch_norm with running statistics in a program that changes nothing in place."""
    return [batch_norm(b, x, weight, bias, mean, var, False, momentum, eps, False), None, None]


def scaled_by_channel(b: Builder, x: View, dim: int, scale: Tensor, shift: Tensor) -> View:
    """Return scale * x + shift in one rounding, a number each for each index of the dimension."""
    over = (1,) * (len(x.dims) - 1 - dim)
    x, factors = b.constant(b.real(x), scale.reshape(-1, *over))
    _, terms = b.constant(x, shift.reshape(-1, *over))
    return b.alike("affine", x, scale=factors, shift=terms)


def layer_norm(
    b: Builder, x: View, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> View:  # fmt: skip
    last = len(x.dims) - len(shape)
    channels = tuple(axis for dim in x.dims[last:] for axis in dim)
    y = normalised(b, x, channels, eps)
    if weight is None and bias is None:
        return y
    weight, bias = _both(weight, bias)
    _, scale = b.constant(y, weight)
    _, shift = b.constant(y, bias)
    return b.alike("affine", y, scale=scale, shift=shift)


def _both(weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a normalisation that may lack one: it is 1, or 0."""
    known = weight if weight is not None else bias
    assert known is not None
    return (
        torch.ones_like(known) if weight is None else weight,
        torch.zeros_like(known) if bias is None else bias,
    )


def group_norm(
    b: Builder, x: View, groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> View:  # fmt: skip
    batch, channels, *sides = x.shape
    parts = b.reshaped(x, (batch, groups, channels // groups, *sides))
    over = tuple(axis for axis in parts.memory if axis not in (*parts.dims[0], *parts.dims[1]))
    y = b.reshaped(normalised(b, parts, over, eps), x.shape)
    if weight is None and bias is None:
        return y
    return scaled_by_channel(b, y, 1, *_both(weight, bias))


def instance_norm(
    b: Builder, x: View, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn: bool,
) -> View:  # fmt: skip
    if use_input_stats:
        return group_norm(b, x, x.shape[1], weight, bias, eps)
    return batch_norm(b, x, weight, bias, mean, var, False, momentum, eps, cudnn)


def normalised(b: Builder, x: View, over: Axes, eps: float) -> View:
    """Return x less its mean over some axes, divided by its standard deviation there."""
    name, view = b.pixels(b.real(x), over)
    return view.named(b.emit("layer_norm", [name], {"eps": float(eps)}))


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
        y = conv(b, frames, weight[:, :, tap], own, strides, sides, spread, groups)
        parts.append(_volume(b, y, x.shape[0]))
    return reduce(partial(add, b), parts)


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
        sums = binary_conv(b, frames, weight[:, :, tap], strides, sides, spread, groups, pad_value)
        y = _volume(b, b.real(sums), x.shape[0])
        parts.append(shapes.pad(b, y, (0, 0, 0, 0, first, count - end)))
    return reduce(partial(add, b), parts)


def _frames(b: Builder, x: View, start: int, stop: int, step: int) -> View:
    """Return some of the frames of a volume (N, C, D, H, W) as maps (N D, C, H, W)."""
    x = shapes.slice_(b, x, 2, start, stop, step)
    n, channels, depth, *sides = x.shape
    return b.reshaped(shapes.transpose(b, x, 1, 2), (n * depth, channels, *sides))


def _volume(b: Builder, maps: View, samples: int) -> View:
    """Undo `_frames`."""
    frames, *rest = maps.shape
    return shapes.transpose(b, b.reshaped(maps, (samples, frames // samples, *rest)), 1, 2)


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
    """With its taps filled up with zeros, so that all phases are alike; of signs, which 0 is not, without."""
    if bias is None and bool((weight.abs() == 1).all()):
        sides = _sides(x, weight, stride, padding, output_padding, dilation)

        def of_signs(x: View, kernels: Tensor, near: list[int], far: list[int], spread: list[int]) -> View:
            return conv_sided(b, x, kernels, None, near, far, groups, 1, spread)

        return _Transposed(b, x, weight, groups, sides, of_signs).result()
    weight = _dilated(weight, numbers(dilation, weight.ndim - 2))
    short = [-k % s for k, s in zip(weight.shape[2:], numbers(stride, weight.ndim - 2), strict=True)]
    weight = torch.nn.functional.pad(weight, [m for count in reversed(short) for m in (0, count)])
    extra = [more - m for more, m in zip(numbers(output_padding, len(short)), short, strict=True)]

    def convolve(x: View, kernels: Tensor, near: list[int], far: list[int], spread: list[int]) -> View:
        count = kernels.shape[0] // (groups * weight.shape[1])
        repeated = None if bias is None else bias.reshape(groups, 1, -1).expand(-1, count, -1).reshape(-1)
        return conv_sided(b, x, kernels, repeated, near, far, groups)

    return _Transposed(b, x, weight, groups, _sides(x, weight, stride, padding, extra, 1), convolve).result()


def binary_conv_transposed(
    b: Builder, x: View, weight: Tensor, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> View:  # fmt: skip
    """A tap or an input that is not there is neither -1 nor +1: the sum goes without it."""

    def convolve(x: View, kernels: Tensor, near: list[int], far: list[int], spread: list[int]) -> View:
        sides = last_first(near, far)
        return b.real(binary_conv(b, x, kernels, [1] * len(near), sides, spread, groups, 0))

    sides = _sides(x, weight, stride, padding, output_padding, dilation)
    return _Transposed(b, x, weight, groups, sides, convolve).result()


def last_first(near: list[int], far: list[int]) -> list[int]:
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
