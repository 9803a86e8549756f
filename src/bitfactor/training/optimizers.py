"""The optimizer of a plan, and its learning rate over time."""

import math
from collections.abc import Callable
from functools import partial

from torch import nn
from torch.optim import Adam, Optimizer, RMSprop

from bitfactor.convert import parameter_groups
from bitfactor.training.optimization import Optimization

_FIRST_SHARE = 0.01  # of the learning rate, at the start of a warm-up


def learning_rate(plan: Optimization, epoch: float, epochs: int) -> float:
    """Return the rate after `epoch` (a fraction, too) of `epochs`.

    Example
    -------
    >>> plan = Optimization(epochs=90, batch_size=256, learning_rate=1e-3, schedule="step",
    ...                     plateaus=3, min_lr=1e-6)
    >>> [f"{learning_rate(plan, epoch, 90):.1e}" for epoch in (0, 29.9, 30, 89.9)]
    ['1.0e-03', '1.0e-03', '3.2e-05', '1.0e-06']
    """
    if epoch < plan.warmup_epochs:
        return plan.learning_rate * max(_FIRST_SHARE, epoch / plan.warmup_epochs)
    if plan.schedule == "step":
        plateau = min(int(epoch / epochs * plan.plateaus), plan.plateaus - 1)
        falls = plan.min_lr / plan.learning_rate
        return plan.learning_rate * math.pow(falls, plateau / (plan.plateaus - 1))
    fraction = (epoch - plan.warmup_epochs) / max(epochs - plan.warmup_epochs, 1e-9)
    fallen = 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
    return plan.min_lr + (plan.learning_rate - plan.min_lr) * fallen


# Fused, Adam takes half the time on a CPU.
_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": partial(Adam, fused=True), "rmsprop": RMSprop}


def optimizer_of(model: nn.Module, plan: Optimization) -> Optimizer:
    """Return the optimizer; a group's `rate` is its fraction of the learning rate, see `parameter_groups`."""
    groups = parameter_groups(model, weight_decay=plan.weight_decay, factor_rate=plan.factor_rate)
    return _OPTIMIZERS[plan.optimizer](groups, lr=plan.learning_rate)
