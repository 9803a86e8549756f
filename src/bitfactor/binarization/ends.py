"""What a run of a model shows: which layers are at its ends, which are bypassed, and the shapes of each."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bitfactor.common.checks import expect_that
from bitfactor.format.graph import MOST_ELEMENTS
from bitfactor.nn import BinaryLayer, MultiheadAttention
from bitfactor.nn.model import Call, copied, first_tensor


class Shapes(NamedTuple):
    """The shapes of a module's first input and of its output in one call."""

    input: tuple[int, ...]
    output: tuple[int, ...]


def zeros(model: nn.Module, input_shape: Sequence[int]) -> Call:
    """Return the call of a model with a batch of zeros."""
    fits = all(size >= 0 for size in input_shape) and math.prod(input_shape) < MOST_ELEMENTS
    expect_that(fits, "input_shape", expected="the shape of a batch", found=tuple(input_shape))
    reference = next(model.parameters(), torch.empty(0))
    return Call((torch.zeros(tuple(input_shape), dtype=reference.dtype, device=reference.device),))


def record_calls(model: nn.Module, call: Call) -> dict[str, list[Shapes]]:
    """Run a batch through the model in eval mode; return module -> the shapes of each call.

    Listed are those of `leaves`.
    """
    calls: dict[str, list[Shapes]] = defaultdict(list)
    with ExitStack() as hooks, _evaluating(model), torch.no_grad():
        for name, module in leaves(model):
            hook = partial(_record, calls[name])
            hooks.enter_context(module.register_forward_hook(hook, with_kwargs=True))
        call.tried(model)
    return calls


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield what computes: binary layers as a whole, and what has no children or parameters of its own."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(inside) and inside:
            continue
        if isinstance(module, BinaryLayer):
            inside = (*inside, f"{name}." if name else "")
            yield name, module
        elif module._parameters or not any(True for _ in module.children()):
            yield name, module


def _record(calls: list[Shapes], module: nn.Module, args: object, kwargs: object, output: object) -> None:
    given = first_tensor((args, kwargs))
    if isinstance(output, Tensor) and given is not None:
        calls.append(Shapes(tuple(given.shape), tuple(output.shape)))


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
    """Return layer -> size of its output without batch and channels, of the layer's last call.

    A linear layer has no size: what lies before its features are samples.
    """
    found = {name: calls[-1].output[2:] for name, calls in record_calls(model, call).items() if calls}
    return {name: () if hasattr(model.get_submodule(name), "in_features") else found[name] for name in found}


_GUESSES = 4
_SIDE = {1: (256,), 2: (64, 64), 3: (16, 32, 32)}


class Ends:
    """What one run of `model` tells of `layers`.

    first
        Layers that the input reaches without another layer before them, such as each branch of a first block.
    last
        Layers whose output reaches the model's without another layer behind them.
    bypassed
        Layers whose weight takes part without their being called: other code reads it.
    """

    def __init__(self, model: nn.Module, layers: Mapping[str, nn.Module], call: Call) -> None:
        model = copied(model).eval()
        own = {name: model.get_submodule(name) for name in layers}
        watched = call.mapped(lambda x: x.detach().clone().requires_grad_(x.is_floating_point()))
        entries, exits, outputs = _run(model, own, watched)
        called = set(exits)
        grads = {id(node): name for name, nodes in exits.items() for node in nodes}
        starts = {id(x) for x in watched.tensors}
        self.first = {
            name for name in called if any(id(leaf) in starts for leaf in _leaves(entries[name], grads))
        }
        self.last = {grads[id(node)] for node in _walk(_nodes(outputs), grads) if id(node) in grads}
        outside = [*_nodes(outputs), *(node for nodes in entries.values() for node in nodes)]
        used = {id(leaf) for leaf in _leaves(outside, grads)}
        with torch.no_grad():
            fused = called - set(_run(model, own, watched.mapped(Tensor.detach))[1])
        read = {name for name, layer in own.items() if any(id(p) in used for p in layer.parameters())}
        self.bypassed = fused | read


def ends_of(model: nn.Module, layers: Mapping[str, nn.Module], example: Call | None) -> Ends | None:
    """Return what a run of the model tells; None where no example is given and none can be guessed."""
    if not layers:
        return None
    if example is not None:
        return Ends(model, layers, example)
    for guess in _guesses(layers.values()):
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
                ends = Ends(model, layers, Call((guess,)))
        except Exception:  # whatever the model's own code says of a batch it was not made for
            continue
        if ends.first and ends.last:
            return ends
    return None


def _guesses(layers: Iterable[nn.Module]) -> list[Tensor]:
    """Return batches as a model may take them that begins with one of its layers, convolutions first."""
    guesses: dict[tuple[int, ...], Tensor] = {}
    for layer in layers:
        weight = layer.weight
        if isinstance(weight, Tensor):
            sizes = _SIDE[weight.dim() - 2] if weight.dim() > 2 else ()
            shape = 2, getattr(layer, "in_channels", weight.shape[1]), *sizes
            guesses.setdefault(shape, torch.zeros(shape).to(weight))
    return sorted(guesses.values(), key=lambda x: x.dim() == 2)[:_GUESSES]


def _run(
    model: nn.Module, layers: Mapping[str, nn.Module], call: Call
) -> tuple[dict[str, list[Any]], dict[str, list[Any]], Any]:
    """Return layer -> nodes of autograd that its inputs, and its outputs, come from; and the outputs."""
    entries: dict[str, list[Any]] = {}
    exits: dict[str, list[Any]] = {}

    def noting(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            entries.setdefault(name, []).extend(_nodes((args, kwargs)))
            exits.setdefault(name, []).extend(_nodes(output))
            return output

        return noted

    # No hooks: a parent that sees hooks may leave its usual way.
    for name, layer in layers.items():
        vars(layer)["forward"] = noting(name, type(layer).forward.__get__(layer))
    return entries, exits, call.tried(model)


def _nodes(values: object) -> list[Any]:
    tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.requires_grad]
    return [torch.autograd.graph.get_gradient_edge(x).node for x in tensors]


def _walk(starts: Sequence[Any], stops: Mapping[int, str]) -> Iterator[Any]:
    """Yield the nodes behind `starts`, not going on behind those in `stops`."""
    seen: set[int] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if id(node) not in stops:
            waiting += [following for following, _ in node.next_functions]


def _leaves(starts: Sequence[Any], stops: Mapping[int, str]) -> list[Tensor]:
    """Return the tensors without a history that the nodes come from."""
    return [node.variable for node in _walk(starts, stops) if hasattr(node, "variable")]


def bypassed(model: nn.Module, layers: Mapping[str, nn.Module], ends: Ends | None) -> dict[str, str]:
    """Return the layers whose weight others read, with the reason why they stay real."""
    found = dict.fromkeys(
        ends.bypassed if ends is not None else (), "other code reads its weight and does not call it"
    )
    for parent_name, parent in model.named_modules():
        if isinstance(parent, nn.MultiheadAttention) and not isinstance(parent, MultiheadAttention):
            found[f"{parent_name}.out_proj".lstrip(".")] = "its parent reads its weight and does not call it"
        attention = parent.self_attn if isinstance(parent, nn.TransformerEncoderLayer) else None
        if isinstance(attention, nn.MultiheadAttention) and attention.in_proj_bias is not None:
            # Its fused path, in evaluation, calls none of them.
            fused = {f"{parent_name}.{name}".lstrip(".") for name in ("linear1", "linear2")}
            found |= dict.fromkeys(fused & layers.keys(), "its parent's fused path does not call it")
    holders: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        holders.setdefault(id(parameter), []).append(name)
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, layer in layers.items():
        weight = layer._parameters.get("weight")
        if isinstance(layer, BinaryLayer):
            continue
        if weight is None:
            found[name] = "its weight is computed from other parameters"
            continue
        others = [holder for holder in holders[id(weight)] if modules[holder.rpartition(".")[0]] is not layer]
        if others:
            found[name] = f"its weight is tied to {others[0]}"
    return found
