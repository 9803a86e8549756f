"""What the signs that reach a model's layers are, on a batch."""

import copy
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

_DEAD = 0.9  # of a layer's input channels


def constant_signs(model: nn.Module, layers: Iterable[str], inputs: Sequence[Tensor]) -> dict[str, float]:
    """Return layer -> fraction of its input channels whose sign is one all over the batch, if nearly all.

    What follows a sigmoid or a square is positive throughout: a binary layer sees +1 alone, gives the same
    output for every input, and learns nothing. The batch goes through a copy in training mode, as BatchNorm
    of a fresh network has no statistics yet.
    """
    copied = copy.deepcopy(model).train()
    found: dict[str, list[Tensor]] = {name: [] for name in layers}
    for name in layers:
        copied.get_submodule(name).register_forward_pre_hook(
            lambda module, given, name=name: found[name].append(_constant(given[0]))
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copied(*inputs)
    fractions = {
        name: float(torch.stack(calls).float().mean())
        for name, calls in found.items()
        if calls and len({call.shape for call in calls}) == 1 and calls[0].numel()
    }
    return {name: fraction for name, fraction in fractions.items() if fraction >= _DEAD}


def _constant(x: Tensor) -> Tensor:
    """Return for each channel whether its signs are all the same; nothing where it has one value alone."""
    channels = x.movedim(1, 0).flatten(1) if x.dim() > 2 else x.mT.reshape(x.shape[-1], -1)
    if channels.shape[1] < 2:
        return torch.zeros(0)
    positive = channels > 0
    return (positive == positive[:, :1]).all(1)
