"""What a traced graph computes, said in fewer nodes: the gradient's part of a forward falls away.

- Aliases (detach, clone, a cast to the type that a value has) are the value itself.
- What is computed twice is computed once.
- Sums lose what they add and subtract: `a.detach() - b.detach() + b`, the idiom of straight-through
  gradients, is a, and the polynomials of b go with it.
- What depends on parameters and buffers alone is computed, by torch.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

_ATEN = torch.ops.aten
_ALIASES = ("detach", "clone", "alias", "contiguous", "lift_fresh_copy", "lift_fresh", "dropout")
_CASTS = ("_to_copy", "to", "type_as")
_SUMS = (_ATEN.add.Tensor, _ATEN.sub.Tensor)


def simplify(graph: fx.Graph) -> None:
    """Shorten a graph without effects, in place; values that stay keep their names."""
    seen: dict[Any, fx.Node] = {}
    for node in [*graph.nodes]:
        if node.op not in ("call_function", "get_attr"):
            continue
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
            found[node] = _attribute(module, str(node.target))
        elif node.op == "call_function" and _is_constant(node, found):
            args, kwargs = fx.map_arg((node.args, node.kwargs), found.__getitem__)
            with torch.no_grad():
                found[node] = node.target(*args, **kwargs)
    return found


def _is_constant(node: fx.Node, found: dict[fx.Node, Any]) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded not in tags and all(x in found for x in node.all_input_nodes)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    value = getattr(module.get_submodule(owner), name)
    return value.detach() if isinstance(value, Tensor) else value
