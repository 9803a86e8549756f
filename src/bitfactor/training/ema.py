"""A moving average of a network."""

import torch
from torch import nn

from bitfactor.nn.copied import copied


class MovingAverage:
    """A copy of a network whose parameters and statistics are exponential averages over the steps.

    Example
    -------
    >>> average = MovingAverage(model, decay=0.999)
    >>> optimizer.step()
    >>> average.update(model)
    >>> average.network(inputs)
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copied(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the parameters as they are now."""
        now = model.state_dict()
        for name, averaged in self.network.state_dict().items():
            if averaged.is_floating_point():
                averaged.lerp_(now[name], 1 - self.decay)
            else:
                averaged.copy_(now[name])
