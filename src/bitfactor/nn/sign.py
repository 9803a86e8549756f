"""The sign function and the gradients that stand in for its own, which is zero almost everywhere.

The sign of a layer's input.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfactor.common.errors import InputError, near_matches
from bitfactor.nn.product import pack_positive, packs, prelu_gradients, where_positive


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


def identity(x: Tensor) -> Tensor:
    """Slope 1: for inputs that are signs already, whose gradient belongs to who made them."""
    return torch.ones_like(x, dtype=torch.int8)


ACTIVATION_SLOPES: dict[str, Callable[..., Tensor]] = {
    "clipped": clipped,
    "polynomial": polynomial,
    "annealed": annealed,
    "identity": identity,
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


class SignActivation(nn.Module):
    """sign(x) with one of the straight-through gradients of `bitfactor.nn.sign`.

    The annealed one has a buffer `progress`, 0 at the start of training and 1 at its end; `anneal_` sets it.

    Example
    -------
    >>> SignActivation("polynomial")(torch.tensor([0.0, 0.1]))
    tensor([-1.,  1.])
    """

    progress: Tensor

    def __init__(self, estimator: str = "clipped") -> None:
        super().__init__()
        if estimator not in ACTIVATION_SLOPES:
            raise InputError(
                "activation estimator",
                expected="a known one",
                found=repr(estimator),
                fix=near_matches(estimator, ACTIVATION_SLOPES),
            )
        self.estimator = estimator
        if estimator == "annealed":
            self.register_buffer("progress", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return straight_through(x, self._slope(x))

    def sloped(self, x: Tensor) -> Tensor:
        """Return x, with the gradient that `forward` gives it."""
        return sloped(x, self._slope(x))

    def _slope(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        slope = ACTIVATION_SLOPES[self.estimator]
        if self.estimator == "annealed":
            return partial(slope, progress=self.progress.to(x.dtype))
        return slope

    def extra_repr(self) -> str:
        return self.estimator


def anneal_(model: nn.Module, progress: float) -> None:
    """Set how far training has come, 0 to 1, in every annealed activation of a model.

    Example
    -------
    >>> anneal_(model, epoch / epochs)
    """
    for module in model.modules():
        if isinstance(module, SignActivation) and module.estimator == "annealed":
            module.progress.fill_(progress)


class ReLU(nn.ReLU):
    """`torch.nn.ReLU`: the same values and gradients; on a CPU it keeps a bit of each output for backward.

    Example
    -------
    >>> ReLU()(torch.tensor([4.0, -4.0]))
    tensor([4., 0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        tracing = torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad)
        if self.inplace or tracing or not packs(x):
            return super().forward(x)
        return _ReLU.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(pack_positive(x))
        return F.relu(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return where_positive(gradient, positive)


class PReLU(nn.PReLU):
    """`torch.nn.PReLU`: x where x > 0, else slope * x; the same values and gradients.

    torch's backward kernel goes element by element on a CPU, and then takes more of a step than the binary
    convolution before it. This one is made of vectorised operations.

    Example
    -------
    >>> PReLU(2)(torch.tensor([[4.0, -4.0]]))
    tensor([[ 4., -1.]], grad_fn=<_PReLUBackward>)
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() < 2 or not x.is_cpu or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return super().forward(x)
        return _PReLU.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        y = F.prelu(x, slope.to(x.dtype))
        ctx.save_for_backward(x.to(y.dtype), slope)  # autocast may have chosen another type
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, slope = ctx.saved_tensors
        if packs(x) and len(slope) == x.shape[1]:
            of_x, of_slope = prelu_gradients(x, gradient, slope)
            return of_x, of_slope.to(slope.dtype)
        channels = slope.to(x.dtype).view(-1, *(1,) * (x.dim() - 2))
        of_x = torch.ops.aten.threshold_backward(gradient, x, 0).lerp_(gradient, channels)
        of_slope = (gradient * x.clamp_max(0)).sum_to_size(channels.shape)
        return of_x, of_slope.view_as(slope).to(slope.dtype)


class Shift(nn.Module):
    """x + b, with one learned b per channel of maps (N, C, H, W); b starts at 0.

    In front of a binary layer it moves the threshold of the sign, as ReActNet's RSign; around a PReLU it is
    ReActNet's RPReLU. A file holds the first as that threshold.

    Example
    -------
    >>> Shift(2)(torch.ones(1, 2, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias

    def extra_repr(self) -> str:
        return str(self.bias.shape[1])
