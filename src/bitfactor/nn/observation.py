"""Layers that see one sign alone, or say the same of every input, on a batch."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.nn.copied import copied
from bitfactor.nn.example import Call

_NEARLY_ALL = 0.9  # of a layer's channels


def dead_layers(model: nn.Module, layers: Iterable[str], call: Call, *, training: bool) -> list[str]:
    """Return a sentence for each layer whose input signs, or whose outputs, do not vary over a batch.

    What follows a sigmoid or a square is positive throughout: a binary layer sees +1 alone, gives the same
    output for every input, and learns nothing. The batch goes through a copy of the model; in training mode
    where BatchNorm has no statistics yet.
    """
    model = copied(model).train(training)
    signs: dict[str, list[Tensor]] = {}
    outputs: dict[str, list[Tensor]] = {}
    for name in layers:
        hook = partial(_note, signs.setdefault(name, []), outputs.setdefault(name, []))
        model.get_submodule(name).register_forward_hook(hook)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        call(model)
    sentences = []
    for name in signs:
        of_input, of_output = (_fraction(found[name]) for found in (signs, outputs))
        if of_input >= _NEARLY_ALL:
            sentences.append(
                f"{name}: {of_input:.0%} of its input channels have one sign all over the example (after a "
                "sigmoid, say), so they tell it nothing; put a BatchNorm before it, or keep it real"
            )
        elif of_output >= _NEARLY_ALL:
            sentences.append(f"{name}: {of_output:.0%} of its outputs are the same all over the example")
    return sentences


def _note(signs: list[Tensor], outputs: list[Tensor], layer: nn.Module, given: Any, output: Tensor) -> None:
    last = hasattr(layer, "in_features")
    signs.append(_constant(given[0] > 0, last))
    outputs.append(_constant(output, last))


def _constant(x: Tensor, channels_last: bool) -> Tensor:
    """Return for each channel whether all its values are equal; nothing where it has one value alone."""
    channels = x.movedim(-1 if channels_last or x.dim() < 2 else 1, 0).flatten(1)
    if channels.shape[1] < 2:
        return torch.zeros(0)
    return (channels == channels[:, :1]).all(1)


def _fraction(calls: Sequence[Tensor]) -> float:
    """Return the fraction of channels that are constant in all calls of a layer."""
    if not calls or not calls[0].numel() or len({call.shape for call in calls}) > 1:
        return 0.0
    return float(torch.stack(list(calls)).all(0).float().mean())
