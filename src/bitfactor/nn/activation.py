"""The sign of a layer's input."""

import torch
from torch import Tensor, nn

from bitfactor.errors import InputError, near_matches
from bitfactor.nn.sign import ACTIVATION_SLOPES, straight_through


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
        slope = ACTIVATION_SLOPES[self.estimator]
        if self.estimator == "annealed":
            progress = self.progress.to(x.dtype)
            return straight_through(x, lambda at: slope(at, progress))
        return straight_through(x, slope)

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
