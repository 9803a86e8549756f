"""The sign of a layer's input."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfactor.errors import InputError, near_matches
from bitfactor.nn.product import pack_positive, packs, prelu_gradients, where_positive
from bitfactor.nn.sign import ACTIVATION_SLOPES, sloped, straight_through


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
