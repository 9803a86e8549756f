"""A network in integers as a graph of operations, which a file stores and the compiled core runs.

It takes and gives real numbers, as the graph that it was made of does. Its first operation makes integers of
its input, and an output is what its integers stand for. Binary layers are those of the original graph.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitfactor.format.graph import Graph
from bitfactor.format.integer.convert import integer_graph
from bitfactor.format.integer.graph import IntegerGraph
from bitfactor.format.model import ModelFile
from bitfactor.format.operations import Node
from bitfactor.format.operations.integer import LARGEST, PIXEL
from bitfactor.format.signature import FreeSizes, Length


def in_integers(model: ModelFile) -> ModelFile:
    """Return a model that computes in integers, by the ranges in its file, or else by its weights.

    Raises
    ------
    InputError
        As `integer_graph`.

    Example
    -------
    >>> {node.op for node in in_integers(load("net.safetensors")).graph.nodes}
    {'integer_quantise', 'integer_conv2d', 'threshold', 'binary_conv2d', 'integer_add', ...}
    """
    graph = _Program(integers_of(model), model.graph).made()
    return replace(model, graph=graph, free=model.free and _renamed(model.free, graph))


def _renamed(free: FreeSizes, graph: Graph) -> FreeSizes:
    """Return the free lengths by the names that values have in the graph of integers."""

    def inner(name: str) -> str:
        return name if _INNER.format(name) not in graph.values else _INNER.format(name)

    def length(one: Length | None) -> Length | None:
        return one and replace(one, axes=tuple((inner(name), axis) for name, axis in one.axes))

    lengths = {
        inner(node): {name: tuple(map(length, entries)) for name, entries in attributes.items()}
        for node, attributes in free.lengths.items()
    }
    return replace(free, lengths=lengths)


_INNER = "{}:integers"  # what an output, or the input, is called before it is a real number again, or after


def integers_of(model: ModelFile) -> IntegerGraph:
    return integer_graph(model.graph, model.input_spec, model.ranges or None)


class _Program:
    """Makes a graph that runs of the integers that were made of `graph`."""

    def __init__(self, integers: IntegerGraph, graph: Graph) -> None:
        self.integers, self.graph = integers, graph
        self.original = {node.name: node for node in graph.nodes}
        self.place = {node.name: i for i, node in enumerate(integers.nodes)}
        outputs = (name for name in integers.outputs if integers.values[name].type in ("pixel", "stream"))
        self.names = {name: _INNER.format(name) for name in (integers.input, *outputs)}

    def made(self) -> Graph:
        nodes = [self._quantised()]
        for node in self.integers.nodes:
            named = replace(node, name=self._name(node.name), inputs=tuple(map(self._name, node.inputs)))
            nodes.append(_MADE.get(node.op, _Program.kept)(self, node, named))
        nodes += [self._real(name) for name in self.names if name != self.integers.input]
        return Graph(self.graph.input, tuple(nodes), self.graph.outputs)

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _quantised(self) -> Node:
        name = self.integers.input
        factor, offset, lower, upper = self.integers.levels()
        bounds, tensors = {"lower": lower, "upper": upper}, {"factor": factor, "offset": offset}
        return Node(self.names[name], "integer_quantise", (name,), bounds, tensors)

    def _real(self, name: str) -> Node:
        value = self.integers.values[name]
        alpha = np.full(value.shape[0], value.scale, np.float32)
        return Node(name, "scale", (self.names[name],), {}, {"alpha": alpha})

    def kept(self, node: Node, named: Node) -> Node:
        return named

    def binary(self, node: Node, named: Node) -> Node:
        return replace(self.original[node.name], name=named.name, inputs=named.inputs)

    def layer(self, node: Node, named: Node) -> Node:
        pixels = self.integers.values[node.inputs[0]].type == "pixel"
        attributes = {key: value for key, value in node.attributes.items() if key != "pixels"}
        attributes = {**attributes, "largest": PIXEL if pixels else LARGEST}
        tensors = dict(node.tensors)
        if "multiplier" not in tensors:
            attributes["shift"] = 0
            tensors["scale"] = np.array([self.integers.values[node.name].scale], np.float32)
        if not node.attributes["pixels"]:
            return replace(named, op="integer_conv2d", attributes=attributes, tensors=tensors)
        tensors["weight"] = tensors["weight"].reshape(len(tensors["weight"]), -1)
        own = {key: attributes[key] for key in ("largest", "shift")}
        return replace(named, op="integer_linear", attributes=own, tensors=tensors)

    def weighed(self, node: Node, named: Node) -> Node:
        """The input that is made last comes first, since it is still in registers; a single pixel second."""
        if len(node.inputs) == 1:
            return replace(named, op="integer_weigh")
        shape, values = self.integers.values[node.name].shape, self.integers.values
        order = sorted(
            range(2),
            key=lambda i: (values[node.inputs[i]].shape != shape, -self.place.get(node.inputs[i], -1)),
        )
        return replace(
            named,
            op="integer_add",
            inputs=tuple(named.inputs[i] for i in order),
            attributes={**node.attributes, "shifts": tuple(node.attributes["shifts"][i] for i in order)},
            tensors={role: tensor for role, tensor in node.tensors.items() if role == "offset"}
            | {
                f"{role}{to}": node.tensors[f"{role}{i}"]
                for to, i in enumerate(order)
                for role in ("positive", "negative")
            },
        )

    def threshold(self, node: Node, named: Node) -> Node:
        """A graph's threshold is compared with the value itself, that of integers with its product by d."""
        direction = node.tensors["direction"]
        limits = (direction * node.tensors["threshold"].astype(np.int32)).astype(np.float32)
        return replace(named, tensors={"threshold": limits, "direction": direction})

    def bent(self, node: Node, named: Node) -> Node:
        return replace(named, op="integer_prelu")

    def averaged(self, node: Node, named: Node) -> Node:
        if self.original[node.name].op == "global_avg_pool":
            return replace(named, op="integer_global_avg_pool", attributes={})
        return replace(named, op="integer_avg_pool2d")


_MADE: dict[str, Callable[[_Program, Node, Node], Any]] = {
    "conv": _Program.layer,
    "binary_conv": _Program.binary,
    "weigh": _Program.weighed,
    "threshold": _Program.threshold,
    "prelu": _Program.bent,
    "avg_pool2d": _Program.averaged,
}
