"""The optimizer of a plan."""

from collections.abc import Callable
from functools import partial

from torch import nn
from torch.optim import Adam, Optimizer, RMSprop

from bitfactor.nn import AnalyticScale, LearnedMapScale, LearnedScale, NoScale
from bitfactor.training.optimization import Optimization

# Fused, Adam takes half the time on a CPU.
_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": partial(Adam, fused=True), "rmsprop": RMSprop}
_UNDECAYED = (
    AnalyticScale,
    LearnedMapScale,
    LearnedScale,
    NoScale,
    nn.PReLU,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
)


def optimizer_of(model: nn.Module, plan: Optimization) -> Optimizer:
    """Return the optimizer; scales, biases, slopes and normalisations are in a group without decay."""
    free = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, _UNDECAYED) or name == "bias"
    }
    decayed = [parameter for parameter in model.parameters() if id(parameter) not in free]
    undecayed = [parameter for parameter in model.parameters() if id(parameter) in free]
    groups = [
        {"params": decayed, "weight_decay": plan.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return _OPTIMIZERS[plan.optimizer]([group for group in groups if group["params"]], lr=plan.learning_rate)
