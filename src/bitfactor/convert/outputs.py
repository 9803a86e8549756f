"""The shapes that a model's modules give, seen in one forward pass."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bitfactor.nn import BinaryLayer
from bitfactor.nn.example import Call


class Shapes(NamedTuple):
    """The shapes of a module's first input and of its output in one call."""

    input: tuple[int, ...]
    output: tuple[int, ...]


def zeros(model: nn.Module, input_shape: Sequence[int]) -> Call:
    """Return the call of a model with a batch of zeros."""
    reference = next(model.parameters())
    return Call((torch.zeros(tuple(input_shape), dtype=reference.dtype, device=reference.device),))


def record_calls(model: nn.Module, call: Call) -> dict[str, list[Shapes]]:
    """Run a batch through the model in eval mode; return module -> the shapes of each call.

    Listed are modules without children, and binary layers as a whole.
    """
    calls: dict[str, list[Shapes]] = defaultdict(list)
    hooks = [module.register_forward_hook(partial(_record, calls[name])) for name, module in leaves(model)]
    try:
        with _evaluating(model), torch.no_grad():
            call(model)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that compute: those without children, and binary layers as a whole."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(inside) and inside:
            continue
        if isinstance(module, BinaryLayer):
            inside = (*inside, name + ".")
            yield name, module
        elif not any(True for _ in module.children()):
            yield name, module


def _record(calls: list[Shapes], module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
    if isinstance(output, Tensor) and inputs and isinstance(inputs[0], Tensor):
        calls.append(Shapes(tuple(inputs[0].shape), tuple(output.shape)))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def output_sizes(model: nn.Module, call: Call) -> dict[str, tuple[int, ...]]:
    """Return layer -> size of its output without batch and channels, of the layer's last call."""
    return {name: calls[-1].output[2:] for name, calls in record_calls(model, call).items() if calls}
