"""A torch model becomes a Graph: `torch.export`, then operator by operator."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from bitfactor.common.errors import InputError
from bitfactor.exporter.adoption import Adoption
from bitfactor.exporter.builder import Builder, Unknown
from bitfactor.exporter.follow import constant_of, module_path
from bitfactor.exporter.operators import FAMILIES, rule_of
from bitfactor.exporter.report import Obstacle, UnsupportedError
from bitfactor.exporter.trace import Trace, leaves, traced, type_of
from bitfactor.exporter.view import View
from bitfactor.format import Graph, Signature
from bitfactor.nn.model import Call, Example, own_line


@dataclass(frozen=True)
class Lowered:
    """A graph and the trace that it comes from.

    `origins` maps values of the graph to nodes of the trace and how these lie in them. `modules` maps nodes
    of the graph to modules of the model. `signature` says how the model is called and what it returns.
    `adoption` tells which layers of others' code are binary.
    """

    graph: Graph
    trace: fx.GraphModule
    signature: Signature
    origins: Mapping[str, tuple[str, View]]
    modules: Mapping[str, str]
    adoption: Adoption | None = None


def lower(model: nn.Module, example: Example | Call) -> Lowered:
    """Turn `model` into a Graph, operator by operator, without any folding."""
    return lower_trace(traced(model, Call.of(example)), type(model).__name__)


def lower_trace(trace: Trace, model: str) -> Lowered:
    """Turn a trace into a Graph; `model` is what messages call it."""
    visit = Visit(trace)
    outputs = visit.outputs()
    if visit.obstacles:
        raise UnsupportedError(model, visit.obstacles)
    signature = visit.signature()
    environment = reversed(visit.environment.items())
    origins = {view.name: (node.name, view) for node, view in environment if isinstance(view, View)}
    graph, modules = visit.builder.graph(outputs), visit.builder.modules
    return Lowered(graph, trace.module, signature, origins, modules, trace.adoption)


class Visit:
    """Goes over the nodes of a trace. What cannot be lowered is an obstacle, and a value of its own from
    there on, so that those behind it are found too. `missing` are the nodes that were not lowered.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.builder = trace, Builder(trace.inputs, trace.samples)
        self.refused = [one.layer for one in trace.refused]
        self.obstacles = [*trace.refused]
        self.missing: set[fx.Node] = set()
        self.environment: dict[fx.Node, Any] = {}
        for node in trace.module.graph.nodes:
            if node.op == "placeholder":
                given = trace.given[node]
                self.environment[node] = self._input(given, node) if isinstance(given, str) else given
            elif node.op == "get_attr":
                self.environment[node] = constant_of(trace.module, node.target)
            elif node.op == "call_function":
                self.environment[node] = self._call(node)

    def _input(self, name: str, node: fx.Node) -> View:
        view = self.builder.view(name)
        return view.with_dim(-1) if len(_shape(node.meta.get("val"))) == 1 else view

    def signature(self) -> Signature:
        """Return how the model is called, with what is known of its outputs now."""
        given = [leaf.meta["val"] for leaf in leaves(self.trace.module) if isinstance(leaf, fx.Node)]
        types = tuple(map(type_of, given))
        scalars = tuple(i for i, x in enumerate(given) if x.dim() == 1)
        returned = types if any(name != "float32" for name in types) else ()
        return replace(self.trace.signature, returned=returned, scalar_outputs=scalars)

    def outputs(self) -> list[str]:
        """Return the values that the outputs are, as torch has them."""
        given = [leaf for leaf in leaves(self.trace.module) if leaf is not None]
        values = [self.environment[leaf] if isinstance(leaf, fx.Node) else leaf for leaf in given]
        if not all(isinstance(value, View | Unknown) for value in values):
            self.obstacles.append(
                Obstacle("", "", "outputs that depend on the input", "a constant", "leave it out")
            )
        return [] if self.obstacles else [self.builder.as_torch(name) for name in values]

    def _call(self, node: fx.Node) -> Any:
        builder, operands = self.builder, [self.environment[operand] for operand in node.all_input_nodes]
        builder.module, line = module_path(node), _line(node)
        builder.where = ", ".join(part for part in (builder.module, line) if part)
        builder.result = _shape(node.meta.get("val"))
        builder.given = [operand.meta.get("val") for operand in node.all_input_nodes]
        inside = any(f"{builder.module}.".startswith(f"{layer}.") for layer in self.refused)
        try:
            if not (inside or any(isinstance(value, Unknown) for value in operands)):
                return _lowered(node, self.environment, builder)
        except InputError as error:
            self.obstacles.append(Obstacle(builder.module, line, error.expected, error.found, error.fix))
        self.missing.add(node)
        return builder.stand_in(node.meta.get("val"))


def _lowered(node: fx.Node, environment: Mapping[fx.Node, Any], builder: Builder) -> Any:
    """Return what a node gives: a value of the graph or several, or a constant."""
    args = fx.map_arg(node.args, environment.__getitem__)
    kwargs = fx.map_arg(node.kwargs, environment.__getitem__)
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not any(
        name in str(node.target) for name in _WITH_DROPOUT
    ):
        raise builder.refused("operators that give the same each time", str(node.target), "leave it out")
    if all(isinstance(environment[operand], Tensor | torch.Size | int) for operand in node.all_input_nodes):
        return node.target(*args, **kwargs)  # type: ignore[operator]
    if any(environment[operand] is None for operand in node.all_input_nodes):
        raise builder.refused("values that the file holds", "places of maxima", "use the maxima alone")
    rule = rule_of(node.target)
    if rule is None:
        raise builder.refused(
            "an operator that the file has",
            str(node.target),
            f"express that part with {FAMILIES}, or leave it out of the exported model",
        )
    try:
        return rule(builder, *args, **kwargs)
    except InputError:
        raise
    except Exception as error:
        raise builder.refused(
            f"{node.target} in a form that the file can hold",
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            "express that part in another way, or leave it out of the exported model",
        ) from error


_WITH_DROPOUT = ("dropout", "scaled_dot_product_attention", "rrelu")  # what evaluation mode leaves out


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _line(node: fx.Node) -> str:
    """Return the innermost line of code outside of torch, as file:line."""
    return own_line(re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or ""))
