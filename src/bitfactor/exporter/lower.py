"""A torch model becomes a Graph: `torch.export`, then operator by operator."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from bitfactor.errors import InputError
from bitfactor.exporter.bake import bake
from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators import LOWERING
from bitfactor.format import Graph, Value


@dataclass(frozen=True)
class Lowered:
    """A graph, the traced module that it comes from, and value of the graph -> node of the module."""

    graph: Graph
    module: fx.GraphModule
    origins: Mapping[str, str]


def lower(model: nn.Module, example_input: Tensor) -> Lowered:
    """Turn `model` into a Graph, operator by operator, without any folding.

    Raises
    ------
    InputError
        If the model cannot be traced, or holds an operator that is not in `LOWERING`. The message names the
        operator and the module it stands in.
    """
    baked = bake(model)
    try:
        program = torch.export.export(baked, (example_input,))
    except Exception as error:
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise InputError(
            type(model).__name__,
            expected="a model that torch.export can trace",
            found=f"{type(error).__name__}: {first_line}",
            fix="remove control flow that depends on values, and see the torch.export documentation",
        ) from error
    builder = Builder(Value("input", tuple(example_input.shape[1:]), "float32"), len(example_input))
    return _visit(program.module(), builder)


def _visit(module: fx.GraphModule, builder: Builder) -> Lowered:
    environment: dict[fx.Node, Any] = {}
    outputs: tuple[str, ...] = ()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            environment[node] = builder.input.name
        elif node.op == "get_attr":
            environment[node] = _attribute(module, node.target)
        elif node.op == "output":
            found = fx.map_arg(node.args[0], environment.__getitem__)
            outputs = (found,) if isinstance(found, str) else tuple(found)
        elif node.op == "call_function":
            environment[node] = _call(node, environment, builder)
    graph = builder.graph([builder.as_torch(name) for name in outputs])
    origins = {value: node.name for node, value in reversed(environment.items()) if isinstance(value, str)}
    return Lowered(graph, module, origins)


def _attribute(module: nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name).detach()  # type: ignore[no-any-return]


def _call(node: fx.Node, environment: dict[fx.Node, Any], builder: Builder) -> Any:
    args = fx.map_arg(node.args, environment.__getitem__)
    kwargs = fx.map_arg(node.kwargs, environment.__getitem__)
    if all(isinstance(environment[operand], Tensor | torch.Size | int) for operand in node.all_input_nodes):
        return node.target(*args, **kwargs)  # type: ignore[operator]
    builder.module = _module_path(node)
    builder.where = ", ".join(part for part in (builder.module, _line(node)) if part)
    builder.result = _shape(node.meta.get("val"))
    if any(environment[operand] is None for operand in node.all_input_nodes):
        raise builder.refused("values that the file holds", "places of maxima", "use the maxima alone")
    rule = LOWERING.get(str(node.target))
    if rule is None:
        raise builder.refused(
            f"operators among {', '.join(sorted(name for name in LOWERING if name.startswith('aten.')))}",
            str(node.target),
            "express that part with these, or leave it out of the exported model",
        )
    try:
        result = rule(builder, *args, **kwargs)
    except (TypeError, RuntimeError) as error:
        raise builder.refused(
            f"{node.target} in a form that the file can hold",
            " ".join(str(error).split())[:200],
            "express that part in another way, or leave it out of the exported model",
        ) from error
    if isinstance(result, str):
        builder.torch_shapes[result] = builder.result[1:]
    return result


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _module_path(node: fx.Node) -> str:
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]).removeprefix("L['self'].") if stack else ""


def _line(node: fx.Node) -> str:
    """Return the innermost line of code outside of torch, as file:line."""
    lines = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, number) for file, number in lines if not Path(file).is_relative_to(_TORCH)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


_TORCH = Path(torch.__file__).parent
