"""What torch.export does not see through, and what a traced graph computes, said in fewer nodes.

`if self.temperature < 1e-7` and `self.tau.item()` depend on no input, but torch.export knows a buffer's shape
alone. So the model runs once, what it asks of such tensors is written down, and the trace gets it again.
Nor does a trace see what goes through `x.data`, which is there what `x.detach()` is. Regions that torch keeps
as graphs of their own (autocast, no_grad, checkpointing) come into the graph that they stand in.

From a trace, the gradient's part of a forward falls away:

- Aliases (detach, clone, a cast to the type that a value has) are the value itself.
- What is computed twice is computed once.
- Sums lose what they add and subtract: `a.detach() - b.detach() + b`, the idiom of straight-through
  gradients, is a, and the polynomials of b go with it.
- What depends on parameters and buffers alone is computed, by torch.
"""

import functools
from collections import Counter
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


_ATEN = torch.ops.aten
_ALIASES = ("detach", "clone", "alias", "contiguous", "lift_fresh_copy", "lift_fresh", "dropout")
_CASTS = ("_to_copy", "to", "type_as")
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor)


def simplify(graph: fx.Graph) -> None:
    """Shorten a graph without effects, in place; values that stay keep their names.

    What is a view of a copy becomes a reshape, as the copy goes.
    """
    seen: dict[Any, fx.Node] = {}
    for node in [*graph.nodes]:
        if node.op not in ("call_function", "get_attr"):
            continue
        if node.target in (_ATEN.view.default, _ATEN._unsafe_view.default):
            node.target = _ATEN.reshape.default
        same = _same_value(node) or seen.get(_fingerprint(node)) or _cancel(node)
        if same is None:
            seen[_fingerprint(node)] = node
        else:
            node.replace_all_uses_with(same)
    remove_unused(graph)


def remove_unused(graph: fx.Graph) -> None:
    """Drop the nodes that no output depends on."""
    for node in reversed([*graph.nodes]):
        if node.op in ("call_function", "get_attr") and not node.users:
            graph.erase_node(node)


def name_of(node: fx.Node) -> str:
    """Return the operator's name, without the library's, its overload's and the mark of one in place."""
    return str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_")


def module_path(node: fx.Node) -> str:
    """Return the path of the module whose code a node is."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]).removeprefix("L['self'].") if stack else ""


def _same_value(node: fx.Node) -> fx.Node | None:
    """Return the node whose value this one has."""
    operand = node.args[0] if node.args else None
    if not isinstance(operand, fx.Node):
        return None
    name, before, after = name_of(node), operand.meta.get("val"), node.meta.get("val")
    if name in _ALIASES:
        return operand
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return None
    unchanged = before.dtype == after.dtype and before.shape == after.shape
    return operand if name in (*_CASTS, "expand", "expand_as", "view", "reshape") and unchanged else None


def _fingerprint(node: fx.Node) -> Any:
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return node
    return (node.op, str(node.target), str(node.args), str(node.kwargs))


def _terms(node: Any, factor: int, depth: int) -> Iterator[tuple[Any, int]]:
    """Yield what a sum adds, and how often, looking into sums of sums `depth` times."""
    if not depth or not isinstance(node, fx.Node) or node.target not in _SUMS or node.kwargs:
        yield node, factor
        return
    first, second = node.args
    yield from _terms(first, factor, depth - 1)
    yield from _terms(second, factor if node.target is _ATEN.add.Tensor else -factor, depth - 1)


def _cancel(node: fx.Node) -> fx.Node | None:
    """Return what is left of a sum once what it adds and subtracts is gone, where that is one value."""
    for depth in range(2, 5) if node.target in _SUMS else ():
        counts = Counter[Any]()
        for term, factor in _terms(node, 1, depth):
            counts[term] += factor
        left: list[Any] = [term for term, count in counts.items() for _ in range(abs(count)) if count]
        if len(left) == 1 < len(counts) and counts[left[0]] == 1 and _alike(left[0], node):
            return left[0]  # type: ignore[no-any-return]
    return None


def _alike(term: Any, node: fx.Node) -> bool:
    return isinstance(term, fx.Node) and term.meta["val"].shape == node.meta["val"].shape


def constants(module: fx.GraphModule) -> dict[fx.Node, Any]:
    """Return the value of each node that depends on no input."""
    found: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            found[node] = constant_of(module, str(node.target))
        elif node.op == "call_function" and _is_constant(node, found):
            args, kwargs = fx.map_arg((node.args, node.kwargs), found.__getitem__)
            with torch.no_grad():
                found[node] = node.target(*args, **kwargs)
    return found


def products_as_linear(module: fx.GraphModule) -> None:
    """Turn matrix products with a constant of two dimensions into linear layers, in place."""
    products = [node for node in module.graph.nodes if node.target in _PRODUCTS]
    known = constants(module) if products else {}
    for node in products:
        operands = [node.args[i] for i in _PRODUCTS[node.target]]
        weight = known.get(operands[1])
        if node.kwargs or not isinstance(weight, Tensor) or weight.dim() != 2 or operands[0] in known:
            continue
        if len(operands) > 2 and operands[2].meta["val"].shape != weight.shape[1:]:
            continue
        with module.graph.inserting_before(node):
            turned = module.graph.call_function(_ATEN.t.default, (operands[1],))
        turned.meta = {**operands[1].meta, "val": weight.t()}
        node.target, node.args = _ATEN.linear.default, (operands[0], turned, *operands[2:])


# the places of input, weight and bias
_PRODUCTS: dict[Any, tuple[int, ...]] = {
    _ATEN.mm.default: (0, 1),
    _ATEN.matmul.default: (0, 1),
    _ATEN.addmm.default: (1, 2, 0),
}


def _is_constant(node: fx.Node, found: dict[fx.Node, Any]) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded not in tags and all(x in found for x in node.all_input_nodes)


def constant_of(module: nn.Module, path: str) -> Any:
    """Return a constant of the trace: a tensor, or the body of a region such as torch.autocast."""
    owner, _, name = path.rpartition(".")
    value = getattr(module.get_submodule(owner), name)
    return value.detach() if isinstance(value, Tensor) else value
