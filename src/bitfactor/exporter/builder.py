"""A Graph in the making."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import infer

_SUFFIX = {"threshold": "sign", "scale": "alpha", "add": "add", "flatten": "flatten"}


class Builder:
    """Collects nodes while the operators of the model are visited in order.

    The kind of a value is looked up by its name; `module` is the path of the module being visited.
    """

    def __init__(self, input: Value) -> None:
        self.input = input
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {input.name: input}
        self.module = ""

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: dict[str, Any] | None = None,
        **tensors: NDArray[Any],
    ) -> str:
        """Append a node and return the name of its value."""
        node = Node(self._name(op), op, tuple(inputs), attributes or {}, tensors)
        self.nodes.append(node)
        self.values[node.name] = infer(node, self.values)
        return node.name

    def graph(self, outputs: Sequence[str]) -> Graph:
        """Return the nodes so far as a Graph."""
        return Graph(self.input, tuple(self.nodes), tuple(outputs))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value, without the batch dimension."""
        return self.values[name].shape

    def real(self, name: str) -> str:
        """Return the value as real numbers: the sums of a binary layer are cast (times an alpha of one)."""
        if self.values[name].kind == "float32":
            return name
        return self.emit("scale", [name], alpha=np.ones(self.shape(name)[0], np.float32))

    def sign(self, name: str) -> str:
        """Return the signs of a value."""
        channels = self.shape(name)[0]
        return self.emit(
            "threshold",
            [name],
            threshold=np.zeros(channels, np.float32),
            direction=np.ones(channels, np.int8),
        )

    def _name(self, op: str) -> str:
        base = ".".join(part for part in (self.module, _SUFFIX.get(op, "")) if part) or op
        name, count = base, 1
        while name in self.values:
            count += 1
            name = f"{base}.{count}"
        return name
