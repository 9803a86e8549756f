"""What torch.export does not see through: values of a model's own buffers, and regions of a graph.

`if self.temperature < 1e-7` and `self.tau.item()` depend on no input, but torch.export knows a buffer's shape
alone. So the model runs once, what it asks of such tensors is written down, and the trace gets it again.
Nor does a trace see what goes through `x.data`, which is there what `x.detach()` is. Regions that torch keeps
as graphs of their own (autocast, no_grad, checkpointing) come into the graph that they stand in.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bitfactor.common.errors import InputError
from bitfactor.nn.model import Call

_DATA = Tensor.data.__get__  # type: ignore[attr-defined]
_ASKING = (Tensor.__bool__, Tensor.item, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.tolist)
_DEPENDS = object()


class _Moving(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Knows the tensors that depend on an input."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors = {id(x): x for x in inputs}

    def depends(self, *values: Any) -> bool:
        return any(id(x) in self.tensors for x in tree_leaves(values) if isinstance(x, Tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.depends(args, kwargs):
            self.tensors |= {id(x): x for x in tree_leaves(result) if isinstance(x, Tensor)}
        return result


class _Written(TorchFunctionMode):
    """Writes down what is asked of tensors; of those that depend on an input, that they do."""

    def __init__(self, moving: _Moving) -> None:
        super().__init__()
        self.moving, self.answers, self.takes_data = moving, list[Any](), False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.takes_data |= func == _DATA
        if func in _ASKING:
            self.answers.append(_DEPENDS if self.moving.depends(args) else result)
        return result


class _Answered(TorchFunctionMode):
    """Gives the answers again, in the same order."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__()
        self.answers: Iterator[Any] = iter(answers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _DATA:
            return args[0].detach()
        answer = next(self.answers, _DEPENDS) if func in _ASKING else _DEPENDS
        return func(*args, **(kwargs or {})) if answer is _DEPENDS else answer


def follow_(model: nn.Module, call: Call) -> None:
    """Let a model, when it is traced, take each branch on its own buffers as it does on `call`."""
    with torch.no_grad(), _Moving(call.tensors) as moving, _Written(moving) as written:
        call(model)
    if all(answer is _DEPENDS for answer in written.answers) and not written.takes_data:
        return
    forward = model.forward

    @functools.wraps(forward)
    def followed(*args: Any, **kwargs: Any) -> Any:
        with _Answered(written.answers):
            return forward(*args, **kwargs)

    model.forward = followed


_FLOAT32_ALREADY = ("wrap_with_set_grad_enabled", "tag_activation_checkpoint", "wrap_activation_checkpoint")
_AUTOCAST = "wrap_with_autocast"


def inline_regions(module: fx.GraphModule) -> None:
    """Put what stands in a region into the graph around it, for regions that change no value here."""
    for node in list(module.graph.nodes):
        body = _body_of(module, node)
        if body is not None:
            inline_regions(body)
            _inline(module, node, body)
    module.graph.eliminate_dead_code()
    module.recompile()


def _body_of(module: fx.GraphModule, node: fx.Node) -> fx.GraphModule | None:
    name = str(node.target) if isinstance(node.target, HigherOrderOperator) else ""
    if name == _AUTOCAST:
        device, dtype, enabled = node.args[:3]
        if enabled and device == "cpu":
            raise InputError(
                "torch.autocast inside of the model",
                expected="float32, in which a file computes",
                found=f"a region in {dtype or 'another type'}",
                fix="leave it out of the forward, and train under autocast around the call",
            )
    elif name not in _FLOAT32_ALREADY:
        return None
    bodies = [one for one in node.args if isinstance(one, fx.Node) and one.op == "get_attr"]
    found = (getattr(module, str(one.target), None) for one in bodies)
    return next((one for one in found if isinstance(one, fx.GraphModule)), None)


def _inline(module: fx.GraphModule, node: fx.Node, body: fx.GraphModule) -> None:
    at = next(i for i, one in enumerate(node.args) if _is(module, one, body))
    operands = node.args[at + 1 :]
    inputs = [one for one in body.graph.nodes if one.op == "placeholder"]
    values: dict[fx.Node, fx.Node] = dict(zip(inputs, operands, strict=True))  # type: ignore[arg-type]
    with module.graph.inserting_before(node):
        for inner in body.graph.nodes:
            if inner.op == "get_attr":
                setattr(module, f"{node.name}_{inner.target}", getattr(body, str(inner.target)))
            if inner.op not in ("placeholder", "output"):
                copy = module.graph.node_copy(inner, values.__getitem__)
                copy.target = f"{node.name}_{inner.target}" if inner.op == "get_attr" else copy.target
                values[inner] = copy
    (returned,) = next(one for one in body.graph.nodes if one.op == "output").args
    results = [values[one] for one in (returned if isinstance(returned, tuple | list) else [returned])]
    for user in list(node.users):
        user.replace_all_uses_with(results[int(str(user.args[1]))])  # each takes one of the results
        module.graph.erase_node(user)
    module.graph.erase_node(node)


def _is(module: fx.GraphModule, argument: object, body: fx.GraphModule) -> bool:
    return isinstance(argument, fx.Node) and getattr(module, str(argument.target), None) is body
