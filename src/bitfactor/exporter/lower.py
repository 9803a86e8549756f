"""A torch model becomes a Graph: `torch.export`, then operator by operator."""

import itertools
import logging
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import TreeSpec, tree_leaves, tree_unflatten

from bitfactor.errors import InputError
from bitfactor.exporter.bake import Refused, bake
from bitfactor.exporter.builder import Builder, Unknown
from bitfactor.exporter.obstacles import Obstacle, UnsupportedError
from bitfactor.exporter.operators import FAMILIES, LOWERING
from bitfactor.format import Graph, Signature, Value
from bitfactor.format.signature import Structure
from bitfactor.nn.example import Call, Example


@dataclass(frozen=True)
class Lowered:
    """A graph and the trace that it comes from.

    `origins` maps values of the graph to nodes of the trace, `modules` nodes of the graph to modules of the
    model. `signature` says how the model is called and what it returns.
    """

    graph: Graph
    trace: fx.GraphModule
    signature: Signature
    origins: Mapping[str, str]
    modules: Mapping[str, str]


def lower(model: nn.Module, example: Example | Call) -> Lowered:
    """Turn `model` into a Graph, operator by operator, without any folding.

    Raises
    ------
    UnsupportedError
        If the model cannot be traced, or holds what is not in `LOWERING`: it names all places, by layer and
        line. An error of the model's own code passes through.
    """
    baked, call = bake(model), Call.of(example)
    _expect_tensors(model, call)
    refused = [module.obstacle for module in baked.modules() if isinstance(module, Refused)]
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(baked, call.args, dict(call.kwargs))
            trace = program.module()
    except Exception as error:
        raise UnsupportedError(type(model).__name__, [*refused, _untraceable(model, error)]) from error
    names, types = input_names(model, call), [_type(x) for x in call.tensors]
    inputs = [Value(name, tuple(x.shape[1:]), "float32") for name, x in zip(names, call.tensors, strict=True)]
    builder = Builder(inputs, len(call.tensors[0]))
    visit = _Visit(trace, builder, refused, dict(zip(_placeholders(trace), _given(call, names), strict=True)))
    outputs = visit.outputs()
    if visit.obstacles:
        raise UnsupportedError(type(model).__name__, visit.obstacles)
    environment = reversed(visit.environment.items())
    origins = {value: node.name for node, value in environment if isinstance(value, str)}
    signature = Signature(tuple(types), _structure(program.call_spec.out_spec, trace))
    return Lowered(builder.graph(outputs), trace, signature, origins, builder.modules)


def input_names(model: nn.Module, call: Call) -> list[str]:
    """Return the names of a model's inputs in the file: a single one of real numbers is "input"."""
    if len(call.tensors) == 1 and call.tensors[0].is_floating_point():
        return ["input"]
    return call.names(model)


def _type(x: Tensor) -> str:
    if x.is_floating_point():
        return "float32"
    return "bool" if x.dtype == torch.bool else "int64"


def _given(call: Call, names: Sequence[str]) -> list[Any]:
    """Return what each placeholder of the trace stands for: the name of an input, or a constant."""
    left = iter(names)
    return [next(left) if isinstance(value, Tensor) else value for value in call.values()]


def _placeholders(trace: fx.GraphModule) -> list[fx.Node]:
    return [node for node in trace.graph.nodes if node.op == "placeholder"]


def _leaves(trace: fx.GraphModule) -> tuple[Any, ...]:
    """Return what a trace gives, one behind the other."""
    (output,) = (node for node in trace.graph.nodes if node.op == "output")
    return tuple(output.args[0]) if isinstance(output.args[0], tuple | list) else (output.args[0],)


def _structure(spec: TreeSpec, trace: fx.GraphModule) -> Structure:
    """Return in what the outputs come, with the number of each in its place."""
    count = itertools.count()
    return _plain(tree_unflatten([None if leaf is None else next(count) for leaf in _leaves(trace)], spec))


def _plain(structure: Any) -> Structure:
    if is_dataclass(structure) and not isinstance(structure, Mapping):
        structure = vars(structure)
    if isinstance(structure, Mapping):
        return {str(name): _plain(part) for name, part in structure.items()}
    if isinstance(structure, list):
        return [_plain(part) for part in structure]
    return tuple(map(_plain, structure)) if isinstance(structure, tuple) else structure


def _untraceable(model: nn.Module, error: Exception) -> Obstacle:
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return Obstacle(
        type(model).__name__,
        _own_line(frames),
        "a model that torch.export can trace",
        f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}",
        "remove control flow that depends on values, and see the torch.export documentation",
    )


def _expect_tensors(model: nn.Module, call: Call) -> None:
    try:
        with torch.no_grad():
            outputs = call(model)
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in call.tensors)
        error.add_note(f"in {type(model).__name__}, run on the example of shape {shapes}")
        raise
    found = [leaf for leaf in tree_leaves(outputs) if leaf is not None]
    if not found or not all(isinstance(output, Tensor) for output in found):
        raise InputError(
            type(model).__name__,
            expected="a tensor as output, or several in a tuple, list or dict",
            found=type(
                next((output for output in found if not isinstance(output, Tensor)), outputs)
            ).__name__,
            fix="export a model that returns tensors",
        )


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


class _Visit:
    """Goes over the nodes of a trace. What cannot be lowered is an obstacle, and a value of its own from
    there on, so that those behind it are found too; `refused` are the obstacles that are known already, and
    `given` is what placeholders stand for.
    """

    def __init__(
        self,
        trace: fx.GraphModule,
        builder: Builder,
        refused: Sequence[Obstacle],
        given: Mapping[fx.Node, Any],
    ) -> None:
        self.trace, self.builder = trace, builder
        self.refused = [one.layer for one in refused]
        self.obstacles = [*refused]
        self.environment: dict[fx.Node, Any] = {}
        for node in trace.graph.nodes:
            if node.op == "placeholder":
                self.environment[node] = given[node]
            elif node.op == "get_attr":
                self.environment[node] = _attribute(trace, node.target)
            elif node.op == "call_function":
                self.environment[node] = self._call(node)

    def outputs(self) -> list[str]:
        """Return the values that the outputs are, as torch has them."""
        leaves = [leaf for leaf in _leaves(self.trace) if leaf is not None]
        values = [self.environment[leaf] if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
        if not all(isinstance(value, str | Unknown) for value in values):
            self.obstacles.append(
                Obstacle("", "", "outputs that depend on the input", "a constant", "leave it out")
            )
        return [] if self.obstacles else [self.builder.as_torch(name) for name in values]

    def _call(self, node: fx.Node) -> Any:
        builder, operands = self.builder, [self.environment[operand] for operand in node.all_input_nodes]
        builder.module, line = _module_path(node), _line(node)
        builder.where = ", ".join(part for part in (builder.module, line) if part)
        builder.result = _shape(node.meta.get("val"))
        inside = any(f"{builder.module}.".startswith(f"{layer}.") for layer in self.refused)
        try:
            if not (inside or any(isinstance(value, Unknown) for value in operands)):
                return _lowered(node, self.environment, builder)
        except InputError as error:
            self.obstacles.append(Obstacle(builder.module, line, error.expected, error.found, error.fix))
        return builder.stand_in(node.meta.get("val"))


def _attribute(module: nn.Module, path: str) -> Any:
    """Return a constant of the trace: a tensor, or the body of a region such as torch.autocast."""
    owner, _, name = path.rpartition(".")
    value = getattr(module.get_submodule(owner), name)
    return value.detach() if isinstance(value, Tensor) else value


def _lowered(node: fx.Node, environment: Mapping[fx.Node, Any], builder: Builder) -> Any:
    """Return what a node gives: a value of the graph or several, or a constant."""
    args = fx.map_arg(node.args, environment.__getitem__)
    kwargs = fx.map_arg(node.kwargs, environment.__getitem__)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and "dropout" not in str(
        node.target
    ):
        raise builder.refused("operators that give the same each time", str(node.target), "leave it out")
    if all(isinstance(environment[operand], Tensor | torch.Size | int) for operand in node.all_input_nodes):
        return node.target(*args, **kwargs)  # type: ignore[operator]
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
    return _own_line(re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or ""))


def _own_line(frames: Sequence[tuple[str, Any]]) -> str:
    """Return the innermost of places in files that is neither torch's nor of a binary layer, as file:line."""
    own = [(file, n) for file, n in frames if not any(Path(file).is_relative_to(room) for room in _OTHERS)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


_HERE = Path(__file__).parent
_OTHERS = (Path(torch.__file__).parent, _HERE, _HERE.parent / "nn")
