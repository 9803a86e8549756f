"""Operators that look at one number at a time, alone or with its partner in another value."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.exporter.builder import Builder, floats

_Constant = Tensor | float
_LARGEST = float(np.finfo(np.float32).max)


def relu(b: Builder, x: str) -> str:
    return b.emit("relu", [b.real(x)])


def prelu(b: Builder, x: str, slope: Tensor) -> str:
    return b.emit("prelu", [b.real(x)], slope=floats(slope.expand(b.shape(x)[0])))


def leaky_relu(b: Builder, x: str, slope: float = 0.01) -> str:
    return prelu(b, x, torch.tensor(slope))


def clip(b: Builder, x: str, lower: float | None = None, upper: float | None = None) -> str:
    bounds = {
        "lower": float(np.float32(-_LARGEST if lower is None else lower)),
        "upper": float(np.float32(_LARGEST if upper is None else upper)),
    }
    return b.emit("clip", [b.real(x)], bounds)


def hardtanh(b: Builder, x: str, lower: float = -1, upper: float = 1) -> str:
    return clip(b, x, lower, upper)


def sigmoid(b: Builder, x: str) -> str:
    return b.emit("sigmoid", [b.real(x)])


def hardsigmoid(b: Builder, x: str) -> str:
    return clip(b, add(b, mul(b, x, 1 / 6), 0.5), 0, 1)


def hardswish(b: Builder, x: str) -> str:
    return mul(b, x, hardsigmoid(b, x))


def silu(b: Builder, x: str) -> str:
    return mul(b, x, sigmoid(b, x))


def tanh(b: Builder, x: str) -> str:
    """2 sigmoid(2 x) - 1."""
    return sub(b, mul(b, sigmoid(b, mul(b, x, 2.0)), 2.0), 1.0)


def gelu(b: Builder, x: str, approximate: str = "none") -> str:
    """X (1 + tanh(z)) / 2 = x sigmoid(2 z)."""
    if approximate != "tanh":
        raise b.refused("gelu with approximate='tanh'", f"approximate={approximate!r}", "train with that")
    z = mul(b, add(b, x, mul(b, power(b, x, 3), 0.044715)), math.sqrt(2 / math.pi))
    return mul(b, x, sigmoid(b, mul(b, z, 2.0)))


def power(b: Builder, x: str, exponent: float) -> str:
    if exponent not in (1, 2, 3, 4):
        raise b.refused("a power of 1, 2, 3 or 4", str(exponent), "write it with these")
    result = x
    for _ in range(int(exponent) - 1):
        result = mul(b, result, x)
    return result


def softmax(b: Builder, x: str, dim: int, dtype: torch.dtype | None = None) -> str:
    if b.axis(x, dim) != 0:
        raise b.refused("softmax over dimension 1, the channels", f"dimension {dim}", "permute first")
    return b.emit("softmax", [b.as_torch(x)])


def add(b: Builder, x: str | _Constant, y: str | _Constant, alpha: float = 1) -> str:
    if isinstance(x, str) and isinstance(y, str):
        return _sum(b, x, mul(b, y, alpha) if alpha != 1 else y)
    if isinstance(x, str):
        return _shifted(b, x, torch.as_tensor(y) * alpha)
    assert isinstance(y, str)
    return _shifted(b, mul(b, y, alpha) if alpha != 1 else y, torch.as_tensor(x))


def sub(b: Builder, x: str | _Constant, y: str | _Constant, alpha: float = 1) -> str:
    return add(b, x, y, -alpha)


def _sum(b: Builder, x: str, y: str) -> str:
    return b.emit("add", b.alike(x, y))


def _shifted(b: Builder, x: str, constant: Tensor) -> str:
    shift = _expanded(b, x, constant)
    if _varies(shift):
        raise b.refused("a constant per channel", f"one shaped {tuple(constant.shape)}", "use (C, 1, 1)")
    return b.emit("affine", [b.real(x)], scale=np.ones(len(shift), np.float32), shift=_first(shift))


def mul(b: Builder, x: str | _Constant, y: str | _Constant) -> str:
    if isinstance(x, str) and isinstance(y, str):
        # The second may have one number per channel, as in squeeze-and-excitation.
        smaller_last = sorted((x, y), key=lambda name: -int(np.prod(b.shape(name))))
        return b.emit("multiply", b.alike(*smaller_last))
    value, constant = (x, y) if isinstance(x, str) else (y, x)
    assert isinstance(value, str)
    factor = _expanded(b, value, torch.as_tensor(constant))
    return b.emit("scale", [value], alpha=floats(factor) if _varies(factor) else _first(factor))


def div(b: Builder, x: str | _Constant, y: str | _Constant) -> str:
    if isinstance(y, str):
        raise b.refused("a division by a constant", "by a computed value", "multiply instead")
    return mul(b, x, 1 / torch.as_tensor(y, dtype=torch.float32))


def _expanded(b: Builder, x: str, constant: Tensor) -> Tensor:
    """Return a constant that is broadcast against x, in the shape that x has in the graph."""
    return constant.float().expand(1, *b.torch_shape(x))[0].reshape(b.shape(x))


def _varies(full: Tensor) -> bool:
    """Whether a constant (C, ...) differs within a channel."""
    return bool((full.reshape(len(full), -1) != full.reshape(len(full), -1)[:, :1]).any())


def _first(full: Tensor) -> NDArray[np.float32]:
    """(C, ...) -> (C,), of a constant that does not differ within a channel."""
    return floats(full.reshape(len(full), -1)[:, 0])
