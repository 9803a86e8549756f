"""Regions of a traced graph that torch keeps as graphs of their own: autocast, no_grad, checkpointing."""

from torch import fx
from torch._ops import HigherOrderOperator

from bitfactor.common.errors import InputError

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
