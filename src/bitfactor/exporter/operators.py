"""ATen operators as graph operations: a rule each, and the table that names them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bitfactor.errors import InputError
from bitfactor.exporter.builder import Builder
from bitfactor.format import pack_signs


def _array(tensor: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _float(tensor: Tensor) -> NDArray[np.float32]:
    return _array(tensor.float())


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    values = [value, value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


def _both_sides(padding: int | Sequence[int]) -> tuple[int, ...]:
    """Read a padding of both sides, or all four numbers, as (top, left, bottom, right)."""
    if not isinstance(padding, int) and len(padding) == 4:
        return tuple(padding)
    height, width = _pair(padding)
    return (height, width, height, width)


def _window(stride: Any, padding: Any, dilation: Any, groups: int) -> dict[str, Any]:
    return {
        "stride": _pair(stride),
        "padding": _both_sides(padding),
        "dilation": _pair(dilation),
        "groups": groups,
    }


def _binary_conv2d(
    b: Builder, x: str, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, pad_value: int
) -> str:
    words = pack_signs(_array(weight.permute(0, 2, 3, 1)))
    left, right, top, bottom = padding
    attributes = _window(stride, [top, left, bottom, right], dilation, groups) | {"pad_value": pad_value}
    return b.emit("binary_conv2d", [b.sign(x)], attributes, weight=words)


def _binary_linear(b: Builder, x: str, weight: Tensor) -> str:
    return b.emit("binary_linear", [b.sign(x)], weight=pack_signs(_array(weight)))


def _conv2d(
    b: Builder, x: str, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    zeros = torch.zeros(len(weight))
    return b.emit(
        "conv2d",
        [b.real(x)],
        _window(stride, padding, dilation, groups),
        weight=_float(weight.permute(0, 2, 3, 1)),
        bias=_float(zeros if bias is None else bias),
    )


def _conv2d_padded(
    b: Builder, x: str, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: str = "valid",
    dilation: Any = 1, groups: int = 1,
) -> str:  # fmt: skip
    """Lower padding "same", which may have one more on the far side, or "valid"."""
    total = [d * (k - 1) for d, k in zip(_pair(dilation), weight.shape[2:], strict=True)]
    near = [n // 2 if padding == "same" else 0 for n in total]
    far = [n - n // 2 if padding == "same" else 0 for n in total]
    return _conv2d(b, x, weight, bias, stride, [*near, *far], dilation, groups)


def _linear(b: Builder, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
    zeros = torch.zeros(len(weight))
    return b.emit("linear", [b.real(x)], weight=_float(weight), bias=_float(zeros if bias is None else bias))


def _batch_norm(
    b: Builder, x: str, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    training: bool, momentum: float, eps: float, cudnn: bool,
) -> str:  # fmt: skip
    """Read scale and shift off torch's own kernel, so that they carry its rounding."""
    if mean is None or var is None:
        raise InputError(
            b.module,
            expected="a BatchNorm with running statistics",
            found="one that normalises by the batch",
            fix="build it with track_running_stats=True",
        )

    def kernel(value: float, mean: Tensor, bias: Tensor | None) -> Tensor:
        return F.batch_norm(torch.full((1, len(var)), value), mean, var, weight, bias, False, 0.0, eps)[0]

    zeros = torch.zeros_like(mean)
    return b.emit(
        "affine", [b.real(x)], scale=_float(kernel(1.0, zeros, None)), shift=_float(kernel(0.0, mean, bias))
    )


def _prelu(b: Builder, x: str, slope: Tensor) -> str:
    return b.emit("prelu", [b.real(x)], slope=_float(slope.expand(b.shape(x)[0])))


def _add(b: Builder, x: str | Tensor, y: str | Tensor, alpha: float = 1) -> str:
    if alpha != 1:
        raise InputError(
            b.module, expected="a sum with alpha 1", found=f"alpha {alpha}", fix="multiply first"
        )
    if isinstance(x, str) and isinstance(y, str):
        return b.emit("add", [b.real(x), b.real(y)])
    value, constant = (x, y) if isinstance(x, str) else (y, x)
    shift = _per_channel(b, str(value), torch.as_tensor(constant))
    return b.emit("affine", [b.real(str(value))], scale=np.ones_like(shift), shift=shift)


def _mul(b: Builder, x: str | Tensor, y: str | Tensor) -> str:
    value, constant = (x, y) if isinstance(x, str) else (y, x)
    if isinstance(constant, str):
        raise InputError(
            b.module, expected="a factor that is constant", found="two computed values", fix="use add"
        )
    full = torch.as_tensor(constant).float().expand(1, *b.shape(str(value)))[0]
    return b.emit(
        "scale",
        [str(value)],
        alpha=_float(full) if _varies(full) else _float(full.reshape(len(full), -1)[:, 0]),
    )


def _per_channel(b: Builder, x: str, constant: Tensor) -> NDArray[np.float32]:
    """Read a constant that is broadcast against x as one number per channel, (C,)."""
    full = constant.float().expand(1, *b.shape(x))[0]
    if _varies(full):
        raise InputError(
            b.module,
            expected="a constant per channel",
            found=f"one shaped {tuple(constant.shape)}",
            fix="use (C, 1, 1)",
        )
    return _float(full.reshape(len(full), -1)[:, 0])


def _varies(full: Tensor) -> bool:
    """Whether a constant (C, ...) differs within a channel."""
    return bool((full.reshape(len(full), -1) != full.reshape(len(full), -1)[:, :1]).any())


def _pool(kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    return {"kernel": _pair(kernel), "stride": _pair(stride or kernel), "padding": _both_sides(padding)}


def _max_pool2d(
    b: Builder,
    x: str,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> str:
    if _pair(dilation) != (1, 1) or ceil:
        raise InputError(
            b.module, expected="max_pool2d without dilation or ceil_mode", found="one", fix="pad instead"
        )
    return b.emit("max_pool2d", [b.real(x)], _pool(kernel, stride, padding))


def _avg_pool2d(
    b: Builder, x: str, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> str:  # fmt: skip
    if ceil or divisor is not None:
        raise InputError(
            b.module, expected="avg_pool2d without ceil_mode or divisor", found="one", fix="pad instead"
        )
    attributes = _pool(kernel, stride, padding) | {"count_include_pad": int(count_include_pad)}
    return b.emit("avg_pool2d", [b.real(x)], attributes)


def _adaptive_avg_pool2d(b: Builder, x: str, size: Any) -> str:
    if _pair(size) != (1, 1):
        raise InputError(
            b.module, expected="adaptive_avg_pool2d to 1x1", found=str(size), fix="use avg_pool2d"
        )
    return b.emit("global_avg_pool", [b.real(x)])


def _upsample_nearest(b: Builder, x: str, size: Any = None, factors: Any = None) -> str:
    shape = b.shape(x)[1:]
    scale = [s / n for s, n in zip(size, shape, strict=True)] if size else list(factors)
    if any(factor != int(factor) for factor in scale):
        raise InputError(b.module, expected="upsampling by whole numbers", found=str(scale), fix="use 2 or 3")
    return b.emit("upsample_nearest", [b.real(x)], {"scale": tuple(int(factor) for factor in scale)})


def _reshape(b: Builder, x: str, shape: Sequence[int]) -> str:
    if len(shape) != 2:
        raise InputError(
            b.module, expected="a reshape to (N, features)", found=str(list(shape)), fix="use flatten(1)"
        )
    return b.emit("flatten", [b.real(x)])


def _flatten(b: Builder, x: str, start: int = 0, end: int = -1) -> str:
    if start != 1 or end not in (-1, len(b.shape(x))):
        raise InputError(
            b.module, expected="flatten from dimension 1", found=f"{start} to {end}", fix="use flatten(1)"
        )
    return b.emit("flatten", [b.real(x)])


def _relu(b: Builder, x: str) -> str:
    return b.emit("relu", [b.real(x)])


def _same(b: Builder, x: str, *_: Any) -> str:
    return x


LOWERING: dict[str, Callable[..., Any]] = {
    "bitfactor.binary_conv2d.default": _binary_conv2d,
    "bitfactor.binary_linear.default": _binary_linear,
    "aten.conv2d.default": _conv2d,
    "aten.conv2d.padding": _conv2d_padded,
    "aten.linear.default": _linear,
    "aten.batch_norm.default": _batch_norm,
    "aten.relu.default": _relu,
    "aten.relu_.default": _relu,
    "aten.prelu.default": _prelu,
    "aten.add.Tensor": _add,
    "aten.add_.Tensor": _add,
    "aten.mul.Tensor": _mul,
    "aten.max_pool2d.default": _max_pool2d,
    "aten.avg_pool2d.default": _avg_pool2d,
    "aten.adaptive_avg_pool2d.default": _adaptive_avg_pool2d,
    "aten.upsample_nearest2d.vec": _upsample_nearest,
    "aten.flatten.using_ints": _flatten,
    "aten.view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten.dropout.default": _same,
    "aten.detach.default": _same,
}
