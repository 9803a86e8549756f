"""Convolutions, linear layers and normalisations. One dimension is two with a height of one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.exporter.builder import Builder, floats
from bitfactor.exporter.view import Axes, View
from bitfactor.format import pack_signs


def sizes_of(value: int | Sequence[int], dimensions: int, unused: int) -> tuple[int, int]:
    """Read a number, or one per dimension, as (height, width); one dimension has a height of `unused`."""
    values = (
        [value] * dimensions if isinstance(value, int) else list(value) * (dimensions // len(list(value)))
    )
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
    height, width = sizes_of(padding, weight.ndim - 2, 0)
    return _conv(b, x, weight, bias, stride, (height, width, height, width), dilation, groups)


def conv_padded(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> View:  # fmt: skip
    """Lower padding "same", which may have one more on the far side, or "valid"."""
    spread = sizes_of(dilation, weight.ndim - 2, 1)
    total = [d * (k - 1) for d, k in zip(spread, _as_2d(weight).shape[2:], strict=True)]
    near = [n // 2 if padding == "same" else 0 for n in total]
    far = [n - n // 2 if padding == "same" else 0 for n in total]
    return _conv(b, x, weight, bias, stride, (*near, *far), dilation, groups)


def conv_sided(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None, near: Sequence[int], far: Sequence[int],
    groups: int,
) -> View:  # fmt: skip
    """A convolution padded before and after each side."""
    sides = (*sizes_of(near, weight.ndim - 2, 0), *sizes_of(far, weight.ndim - 2, 0))
    return _conv(b, x, weight, bias, 1, sides, 1, groups)


def _conv(
    b: Builder, x: View, weight: Tensor, bias: Tensor | None, stride: Any, padding: Sequence[int],
    dilation: Any, groups: int,
) -> View:  # fmt: skip
    n = weight.ndim - 2
    name = b.emit(
        "conv2d",
        [b.maps(b.real(x), n)],
        _geometry(stride, padding, dilation, groups, n),
        weight=floats(_as_2d(weight).permute(0, 2, 3, 1)),
        bias=floats(torch.zeros(len(weight)) if bias is None else bias),
    )
    return b.of_maps(x, name, n)


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
    if factors.ndim == terms.ndim == 1 and len(factors) == 1 < b.shape(x.name)[0]:
        factors, terms = (np.repeat(array, b.shape(x.name)[0]) for array in (factors, terms))
    return b.alike("affine", x, scale=factors, shift=terms)


def layer_norm(
    b: Builder, x: View, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> View:  # fmt: skip
    last = len(x.dims) - len(shape)
    channels = tuple(axis for dim in x.dims[last:] for axis in dim)
    y = normalised(b, x, channels, eps)
    if weight is None:
        return y
    _, scale = b.constant(y, weight)
    _, shift = b.constant(y, torch.zeros_like(weight) if bias is None else bias)
    return b.alike("affine", y, scale=scale, shift=shift)


def group_norm(
    b: Builder, x: View, groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> View:  # fmt: skip
    batch, channels, *sides = x.shape
    parts = b.reshaped(x, (batch, groups, channels // groups, *sides))
    over = tuple(axis for axis in parts.memory if axis not in (*parts.dims[0], *parts.dims[1]))
    y = b.reshaped(normalised(b, parts, over, eps), x.shape)
    if weight is None:
        return y
    shift = torch.zeros_like(weight) if bias is None else bias
    return scaled_by_channel(b, y, 1, weight, shift)


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
