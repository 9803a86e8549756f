"""Convolutions, linear layers and BatchNorm. One dimension is two with a height of one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.exporter.builder import Builder, floats
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
    b: Builder, x: str, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, pad_value: int
) -> str:
    n = weight.ndim - 2
    left, right, top, bottom = [*padding, 0, 0][:4]
    attributes = _geometry(stride, (top, left, bottom, right), dilation, groups, n) | {"pad_value": pad_value}
    words = _bits(_as_2d(weight).permute(0, 2, 3, 1))
    return b.emit("binary_conv2d", [b.sign(b.as_map(x))], attributes, weight=words)


def binary_linear(b: Builder, x: str, weight: Tensor) -> str:
    return b.emit("binary_linear", [b.sign(b.as_torch(x))], weight=_bits(weight))


def conv(
    b: Builder, x: str, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    height, width = sizes_of(padding, weight.ndim - 2, 0)
    return _conv(b, x, weight, bias, stride, (height, width, height, width), dilation, groups)


def conv_padded(
    b: Builder, x: str, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    """Lower padding "same", which may have one more on the far side, or "valid"."""
    spread = sizes_of(dilation, weight.ndim - 2, 1)
    total = [d * (k - 1) for d, k in zip(spread, _as_2d(weight).shape[2:], strict=True)]
    near = [n // 2 if padding == "same" else 0 for n in total]
    far = [n - n // 2 if padding == "same" else 0 for n in total]
    return _conv(b, x, weight, bias, stride, (*near, *far), dilation, groups)


def _conv(
    b: Builder, x: str, weight: Tensor, bias: Tensor | None, stride: Any, padding: Sequence[int],
    dilation: Any, groups: int,
) -> str:  # fmt: skip
    return b.emit(
        "conv2d",
        [b.real(b.as_map(x))],
        _geometry(stride, padding, dilation, groups, weight.ndim - 2),
        weight=floats(_as_2d(weight).permute(0, 2, 3, 1)),
        bias=floats(torch.zeros(len(weight)) if bias is None else bias),
    )


def linear(b: Builder, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
    zeros = torch.zeros(len(weight))
    return b.emit(
        "linear", [b.as_torch(x)], weight=floats(weight), bias=floats(zeros if bias is None else bias)
    )


def batch_norm(
    b: Builder, x: str, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> str:  # fmt: skip
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
    scale, shift = kernel(1.0, zeros, None), kernel(0.0, mean, bias)
    return b.emit("affine", [b.real(x)], scale=floats(scale), shift=floats(shift))
