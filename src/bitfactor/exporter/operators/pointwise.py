"""Operators that look at one number at a time, alone or with its partner in another value."""

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.view import View

Constant = Tensor | float
_LARGEST = float(np.finfo(np.float32).max)
NEVER = -(2.0**100)  # in place of -inf: no sum brings it back, and no model has it as a number of its own
_FINITE = 1e37  # numbers beyond it are no further apart, so that their sums are finite


def finite(constant: Tensor) -> Tensor:
    """Return numbers for what is infinite, and so far from 0 that sums might be."""
    if not constant.is_floating_point():
        return constant
    return torch.nan_to_num(constant, torch.nan, -NEVER, NEVER).clamp(-_FINITE, _FINITE)


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


def absolute(b: Builder, x: View) -> View:
    return leaky_relu(b, x, -1.0)


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


def glu(b: Builder, x: View, gate: View) -> View:
    return mul(b, x, sigmoid(b, gate))


def softmax(b: Builder, x: View, dim: int, dtype: torch.dtype | None = None) -> View:
    name, view = b.pixels(b.real(x), x.dim(dim))
    return view.named(b.emit("softmax", [name]))


def add(b: Builder, x: View | Constant, y: View | Constant, alpha: float = 1) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "add", x, mul(b, y, alpha) if alpha != 1 else y)
    if isinstance(x, View):
        return _shifted(b, x, torch.as_tensor(y) * alpha)
    assert isinstance(y, View)
    return _shifted(b, mul(b, y, alpha) if alpha != 1 else y, torch.as_tensor(x))


def sub(b: Builder, x: View | Constant, y: View | Constant, alpha: float = 1) -> View:
    return add(b, x, y, -alpha)


def _joined(b: Builder, op: str, x: View, y: View) -> View:
    """The larger comes first: the second may have one number for each channel."""
    first, second = sorted(b.together(x, y), key=lambda view: -int(np.prod(b.shape(view.name))))
    return first.named(b.emit(op, [first.name, second.name]))


def _shifted(b: Builder, x: View, constant: Tensor) -> View:
    x, shift = b.constant(b.real(x), finite(constant))
    channels = b.shape(x.name)[0]
    return b.alike("affine", x, scale=np.ones(channels, np.float32), shift=shift)


def mul(b: Builder, x: View | Constant, y: View | Constant) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "multiply", x, y)
    value, constant = (x, y) if isinstance(x, View) else (y, x)
    assert isinstance(value, View)
    value, factor = b.constant(value, torch.as_tensor(constant))
    return value.named(b.emit("scale", [value.name], alpha=factor))


def div(b: Builder, x: View | Constant, y: View | Constant) -> View:
    if isinstance(y, View):
        return mul(b, x, b.alike("reciprocal", y))
    return mul(b, x, 1 / torch.as_tensor(y, dtype=torch.float32))
