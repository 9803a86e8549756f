"""A torch model becomes a Graph: `torch.export`, then operator by operator."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from bitfactor.errors import InputError
from bitfactor.exporter.bake import bake
from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators import FAMILIES, LOWERING
from bitfactor.format import Graph, Value


@dataclass(frozen=True)
class Lowered:
    """A graph and the trace that it comes from.

    `origins` maps values of the graph to nodes of the trace, `modules` nodes of the graph to modules of the
    model.
    """

    graph: Graph
    trace: fx.GraphModule
    origins: Mapping[str, str]
    modules: Mapping[str, str]


def lower(model: nn.Module, example_input: Tensor) -> Lowered:
    """Turn `model` into a Graph, operator by operator, without any folding.

    Raises
    ------
    InputError
        If the model cannot be traced, or holds an operator that is not in `LOWERING`. The message names the
        operator and the module it stands in. An error of the model's own code passes through.
    """
    baked = bake(model)
    _expect_tensors(model, example_input)
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(baked, (example_input,))
    except Exception as error:
        raise InputError(
            type(model).__name__,
            expected="a model that torch.export can trace",
            found=_first_line(error),
            fix="remove control flow that depends on values, and see the torch.export documentation",
        ) from error
    builder = Builder(Value("input", tuple(example_input.shape[1:]), "float32"), len(example_input))
    return _visit(program.module(), builder)


def _expect_tensors(model: nn.Module, example: Tensor) -> None:
    try:
        with torch.no_grad():
            outputs = model(example)
    except Exception as error:
        error.add_note(f"in {type(model).__name__}, run on the example of shape {tuple(example.shape)}")
        raise
    found = outputs if isinstance(outputs, tuple | list) else [outputs]
    if not found or not all(isinstance(output, Tensor) for output in found):
        raise InputError(
            type(model).__name__,
            expected="a tensor as output, or several in a tuple",
            found=type(
                next((output for output in found if not isinstance(output, Tensor)), outputs)
            ).__name__,
            fix="export a model that returns tensors",
        )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch prints of a failing trace, dozens of lines, off the screen; the error is one."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


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
            outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        elif node.op == "call_function":
            environment[node] = _call(node, environment, builder)
    if not all(isinstance(name, str) for name in outputs):
        builder.where = "the model"
        raise builder.refused("outputs that depend on the input", "a constant", "leave it out")
    graph = builder.graph([builder.as_torch(name) for name in outputs])
    origins = {value: node.name for node, value in reversed(environment.items()) if isinstance(value, str)}
    return Lowered(graph, module, origins, builder.modules)


def _attribute(module: nn.Module, path: str) -> Any:
    """Return a constant of the trace: a tensor, or the body of a region such as torch.autocast."""
    owner, _, name = path.rpartition(".")
    value = getattr(module.get_submodule(owner), name)
    return value.detach() if isinstance(value, Tensor) else value


def _call(node: fx.Node, environment: dict[fx.Node, Any], builder: Builder) -> Any:
    args = fx.map_arg(node.args, environment.__getitem__)
    kwargs = fx.map_arg(node.kwargs, environment.__getitem__)
    builder.module = _module_path(node)
    builder.where = ", ".join(part for part in (builder.module, _line(node)) if part)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and "dropout" not in str(
        node.target
    ):
        raise builder.refused("operators that give the same each time", str(node.target), "leave it out")
    if all(isinstance(environment[operand], Tensor | torch.Size | int) for operand in node.all_input_nodes):
        return node.target(*args, **kwargs)  # type: ignore[operator]
    builder.result = _shape(node.meta.get("val"))
    if any(environment[operand] is None for operand in node.all_input_nodes):
        raise builder.refused("values that the file holds", "places of maxima", "use the maxima alone")
    rule = LOWERING.get(str(node.target))
    if rule is None:
        raise builder.refused(
            "an operator that the file has",
            str(node.target),
            f"express that part with {FAMILIES}, or leave it out of the exported model",
        )
    try:
        result = rule(builder, *args, **kwargs)
    except InputError:
        raise
    except Exception as error:
        raise builder.refused(
            f"{node.target} in a form that the file can hold",
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
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
