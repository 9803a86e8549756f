"""The sign function and the gradients that stand in for its own, which is zero almost everywhere."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def sign(x: Tensor) -> Tensor:
    """Return -1 where x <= 0 and +1 where x > 0 (equation 1), in x's type; no gradient flows.

    0.0, -0.0 and negative denormals give -1. NaN has no sign and stays NaN, so that it reaches the loss.

    Example
    -------
    >>> sign(torch.tensor([-2.0, -0.0, 0.0, 0.5]))
    tensor([-1., -1., -1.,  1.])
    """
    # (.., 0] goes to -1, (0, ..) to 1, in three vectorised passes; torch.where is an order slower on a CPU.
    return F.threshold(x.clamp(max=1).ceil_(), 0, -1, inplace=True)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def sloped(x: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
    """Return x, whose gradient is that of the output times slope(x)."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    with torch.no_grad():
        at_x = slope(x)
    return _Sloped.apply(x, at_x)  # type: ignore[no-any-return, no-untyped-call]


def straight_through(x: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
    """Return sign(x) whose gradient is that of the output times slope(x).

    Example
    -------
    >>> x = torch.tensor([-2.0, 0.3], requires_grad=True)
    >>> straight_through(x, clipped).sum().backward()
    >>> x.grad
    tensor([0., 1.])
    """
    if not (torch.is_grad_enabled() and x.requires_grad):
        return sign(x)
    with torch.no_grad():
        at_x = slope(x)
    return _StraightThrough.apply(x, at_x)  # type: ignore[no-any-return, no-untyped-call]


def clipped(x: Tensor) -> Tensor:
    """Slope 1 where abs(x) < 1, else 0, in bytes: the derivative of hard tanh."""
    return x.abs().lt_(1).to(torch.int8)


def polynomial(x: Tensor) -> Tensor:
    """Slope 2 - 2 abs(x) where abs(x) < 1, else 0: ApproxSign of Bi-Real Net."""
    return (2 - 2 * x.abs()).clamp_min(0)


def annealed(x: Tensor, progress: Tensor) -> Tensor:
    """Slope k t (1 - tanh(t x)^2), t = 10^(2 progress - 1), k = max(1 / t, 1): the estimator of IR-Net.

    As progress goes from 0 to 1 the surrogate k tanh(t x) goes from nearly the identity to nearly sign.
    """
    t = 10 ** (2 * progress - 1)
    return torch.clamp_min(1 / t, 1) * t * (1 - torch.tanh(t * x).square())


def sign_clipped(W: Tensor) -> Tensor:
    """Return sign(W), its gradient masked where abs(W) > 1: an absolute mask bounds the growth of factors."""
    return straight_through(W, lambda w: w.abs().le_(1))


def sign_rms(W: Tensor) -> Tensor:
    """Return sign(W / rms(W)), one rms per filter, its gradient passed on whole: free of W's scale."""
    return sign_identity(over_rms(W))


def over_rms(W: Tensor) -> Tensor:
    """Return W / rms(W), one rms per filter."""
    rms = W.flatten(1).square().mean(1).add(torch.finfo(W.dtype).tiny).sqrt()
    return W / rms.view(-1, *(1,) * (W.dim() - 1))


def sign_identity(W: Tensor) -> Tensor:
    """Return sign(W), its gradient passed on whole; factors then grow without bound."""
    return straight_through(W, lambda w: w.new_ones(()))


ACTIVATION_SLOPES: dict[str, Callable[..., Tensor]] = {
    "clipped": clipped,
    "polynomial": polynomial,
    "annealed": annealed,
}

# V, of which an estimator takes the sign, for `bitfactor.nn.product`.
WEIGHT_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped": lambda W: W,
    "rms": over_rms,
    "identity": lambda W: W,
}

WEIGHT_SIGNS: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped": sign_clipped,
    "rms": sign_rms,
    "identity": sign_identity,
}
