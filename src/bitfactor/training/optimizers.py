"""The optimizer of a plan."""

from collections.abc import Callable
from functools import partial

from torch import nn
from torch.optim import Adam, Optimizer, RMSprop

from bitfactor.convert import parameter_groups
from bitfactor.training.optimization import Optimization

# Fused, Adam takes half the time on a CPU.
_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": partial(Adam, fused=True), "rmsprop": RMSprop}


def optimizer_of(model: nn.Module, plan: Optimization) -> Optimizer:
    """Return the optimizer; a group's `rate` is its share of the learning rate, see `parameter_groups`."""
    groups = parameter_groups(model, weight_decay=plan.weight_decay, factor_rate=plan.factor_rate)
    return _OPTIMIZERS[plan.optimizer](groups, lr=plan.learning_rate)
