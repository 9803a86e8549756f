"""Operators that look at one number at a time, alone or with its partner in another value."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.view import View

_Constant = Tensor | float
_LARGEST = float(np.finfo(np.float32).max)
_NEVER = -1e30  # in place of -inf, which no sum brings back


def relu(b: Builder, x: View) -> View:
    return b.alike("relu", x)


def prelu(b: Builder, x: View, slope: Tensor) -> View:
    slope = slope.reshape(-1, *[1] * (len(x.dims) - 2))
    x, slopes = b.constant(x, slope)
    if slopes.shape not in ((b.shape(x.name)[0],), (1,)):  # channels are not side by side
        return add(b, relu(b, x), mul(b, slope, sub(b, x, relu(b, x))))
    return b.alike("prelu", x, slope=np.broadcast_to(slopes, b.shape(x.name)[:1]).copy())


def leaky_relu(b: Builder, x: View, slope: float = 0.01) -> View:
    return b.alike("prelu", x, slope=np.full(b.shape(x.name)[0], slope, np.float32))


def elu(b: Builder, x: View, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> View:
    """Scale (relu(x) + alpha (exp(min(input_scale x, 0)) - 1))."""
    below = sub(b, b.alike("exp", clip(b, mul(b, x, input_scale), None, 0)), 1.0)
    return mul(b, add(b, relu(b, x), mul(b, below, alpha)), scale)


def selu(b: Builder, x: View) -> View:
    return elu(b, x, 1.6732632423543772, 1.0507009873554805)


def sign(b: Builder, x: View) -> View:
    """-1, 0 or 1; numbers below 1e-30 lie between."""
    return clip(b, mul(b, x, 1e30), -1, 1)


def celu(b: Builder, x: View, alpha: float = 1) -> View:
    return elu(b, x, alpha, 1, 1 / alpha)


def softplus(b: Builder, x: View, beta: float = 1, threshold: float = 20) -> View:
    """log(1 + exp(beta x)) / beta, as relu(x) + log(1 + exp(-abs(beta x))) / beta."""
    far = b.alike("exp", mul(b, leaky_relu(b, x, -1.0), -beta))
    return add(b, relu(b, x), mul(b, b.alike("log", add(b, far, 1.0)), 1 / beta))


def mish(b: Builder, x: View) -> View:
    return mul(b, x, tanh(b, softplus(b, x)))


def clip(b: Builder, x: View, lower: float | None = None, upper: float | None = None) -> View:
    bounds = {
        "lower": float(np.float32(-_LARGEST if lower is None else lower)),
        "upper": float(np.float32(_LARGEST if upper is None else upper)),
    }
    return b.alike("clip", x, bounds)


def hardtanh(b: Builder, x: View, lower: float = -1, upper: float = 1) -> View:
    return clip(b, x, lower, upper)


def sigmoid(b: Builder, x: View) -> View:
    return b.alike("sigmoid", x)


def hardsigmoid(b: Builder, x: View) -> View:
    return clip(b, add(b, mul(b, x, 1 / 6), 0.5), 0, 1)


def hardswish(b: Builder, x: View) -> View:
    return mul(b, x, hardsigmoid(b, x))


def tanh(b: Builder, x: View) -> View:
    """2 sigmoid(2 x) - 1."""
    return sub(b, mul(b, sigmoid(b, mul(b, x, 2.0)), 2.0), 1.0)


def silu(b: Builder, x: View) -> View:
    return mul(b, x, sigmoid(b, x))


def gelu(b: Builder, x: View, approximate: str = "none") -> View:
    """Exact, or by tanh: x (1 + tanh(z)) / 2 = x sigmoid(2 z)."""
    if approximate != "tanh":
        return b.alike("gelu", x)
    z = mul(b, add(b, x, mul(b, power(b, x, 3), 0.044715)), math.sqrt(2 / math.pi))
    return mul(b, x, sigmoid(b, mul(b, z, 2.0)))


def power(b: Builder, x: View, exponent: float) -> View:
    known = {0.5: "sqrt", -1: "reciprocal"}
    if exponent in known:
        return b.alike(known[exponent], x)
    if exponent == -0.5:
        return b.alike("reciprocal", b.alike("sqrt", x))
    if exponent not in (1, 2, 3, 4):
        raise b.refused("a power of 1, 2, 3, 4, 0.5, -0.5 or -1", str(exponent), "write it with these")
    result = x
    for _ in range(int(exponent) - 1):
        result = mul(b, result, x)
    return result


def softmax(b: Builder, x: View, dim: int, dtype: torch.dtype | None = None) -> View:
    name, view = b.pixels(b.real(x), x.dim(dim))
    return view.named(b.emit("softmax", [name]))


def log_softmax(b: Builder, x: View, dim: int, dtype: torch.dtype | None = None) -> View:
    return b.alike("log", softmax(b, x, dim))


def add(b: Builder, x: View | _Constant, y: View | _Constant, alpha: float = 1) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "add", x, mul(b, y, alpha) if alpha != 1 else y)
    if isinstance(x, View):
        return _shifted(b, x, torch.as_tensor(y) * alpha)
    assert isinstance(y, View)
    return _shifted(b, mul(b, y, alpha) if alpha != 1 else y, torch.as_tensor(x))


def sub(b: Builder, x: View | _Constant, y: View | _Constant, alpha: float = 1) -> View:
    return add(b, x, y, -alpha)


def _joined(b: Builder, op: str, x: View, y: View) -> View:
    """The larger comes first: the second may have one number for each channel."""
    first, second = sorted(b.together(x, y), key=lambda view: -int(np.prod(b.shape(view.name))))
    return first.named(b.emit(op, [first.name, second.name]))


def _shifted(b: Builder, x: View, constant: Tensor) -> View:
    if constant.is_floating_point():
        constant = constant.clamp(min=_NEVER)
    x, shift = b.constant(b.real(x), constant)
    channels = b.shape(x.name)[0]
    return b.alike("affine", x, scale=np.ones(channels, np.float32), shift=shift)


def mul(b: Builder, x: View | _Constant, y: View | _Constant) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "multiply", x, y)
    value, constant = (x, y) if isinstance(x, View) else (y, x)
    assert isinstance(value, View)
    value, factor = b.constant(value, torch.as_tensor(constant))
    return value.named(b.emit("scale", [value.name], alpha=factor))


def div(b: Builder, x: View | _Constant, y: View | _Constant, rounding_mode: Any = None) -> View:
    if rounding_mode is not None:
        raise b.refused("a division of real numbers", f"rounding_mode={rounding_mode!r}", "leave it out")
    if isinstance(y, View):
        return mul(b, x, b.alike("reciprocal", y))
    return mul(b, x, 1 / torch.as_tensor(y, dtype=torch.float32))


def maximum(b: Builder, x: View | _Constant, y: View | _Constant) -> View:
    """X + relu(y - x)."""
    return add(b, x, relu(b, sub(b, y, x)))


def minimum(b: Builder, x: View | _Constant, y: View | _Constant) -> View:
    return sub(b, x, relu(b, sub(b, x, y)))


def where(b: Builder, condition: View | Tensor, x: View | _Constant, y: View | _Constant) -> View | Tensor:
    """Choose by a condition that does not depend on the input: c x + (1 - c) y."""
    if isinstance(condition, View):
        raise b.refused("a condition that does not depend on the input", "one that does", "use relu or clamp")
    chosen = condition.float()

    def weighted(value: View | _Constant, weight: Tensor) -> View | Tensor:
        if isinstance(value, View):
            return mul(b, value, weight)
        return torch.as_tensor(value).clamp(min=_NEVER) * weight

    return add(b, weighted(x, chosen), weighted(y, 1 - chosen))


def masked_fill(b: Builder, x: View, mask: View | Tensor, value: float) -> View | Tensor:
    return where(b, mask, value, x)
