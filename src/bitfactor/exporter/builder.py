"""A Graph in the making."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.errors import InputError
from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import infer
from bitfactor.format.operations.operation import Shape

_SUFFIX = {"threshold": "sign", "scale": "alpha"}
_SUFFIX |= {op: op for op in ("add", "multiply", "concat", "flatten", "reshape", "permute", "slice")}


class Unknown:
    """Stands for what the graph has no value for."""


class Builder:
    """Collects nodes while the operators of the model are visited in order.

    The graph knows no sequences: what torch has as (C, L) may stand in it as (C, 1, L). `shape` is the
    graph's, `torch_shape` is torch's, both without the batch dimension. `module` is the path of the module
    being visited, `where` that and the line of the user's code, `result` the shape that torch gives there,
    with the batch of `batch` samples; `modules` tells of each node in which module it stands.
    """

    def __init__(self, inputs: Sequence[Value], batch: int) -> None:
        self.inputs, self.batch = inputs, batch
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {value.name: value for value in inputs}
        self.torch_shapes: dict[str, Shape] = {value.name: value.shape for value in inputs}
        self.modules: dict[str, str] = {}
        self.module, self.where = "", ""
        self.result: Shape = ()

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        attributes: dict[str, Any] | None = None,
        **tensors: NDArray[Any],
    ) -> str:
        """Append a node and return the name of its value."""
        node = Node(self._name(op), op, tuple(inputs), attributes or {}, tensors)
        try:
            self.values[node.name] = infer(node, self.values)
        except InputError as error:
            raise self.refused(error.expected, error.found, "express that part in another way") from error
        self.nodes.append(node)
        self.modules[node.name] = self.module
        return node.name

    def stand_in(self, val: object) -> Any:
        """Return a value for what torch gives where it cannot be lowered, as another input of the graph."""
        if isinstance(val, tuple | list):
            return [self.stand_in(part) for part in val]
        if not isinstance(val, Tensor) or not val.is_floating_point():
            return Unknown()
        batch, *shape = val.shape if val.dim() > 1 else (0,)
        if batch != self.batch or min(shape) < 1:
            return Unknown()
        value = Value(self._name("missing"), tuple(shape), "float32")
        self.values[value.name] = value
        return value.name

    def graph(self, outputs: Sequence[str]) -> Graph:
        """Return the nodes so far as a Graph."""
        first, *others = self.inputs
        return Graph(first, tuple(self.nodes), tuple(outputs), tuple(others))

    def shape(self, name: str) -> Shape:
        """Return the shape that a value has in the graph."""
        return self.values[name].shape

    def torch_shape(self, name: str) -> Shape:
        """Return the shape that a value has in torch."""
        return self.torch_shapes.get(name, self.shape(name))

    def result_shape(self) -> Shape:
        """Return the shape of one sample that torch gives here.

        Raises
        ------
        InputError
            If the batch is no longer the first dimension.
        """
        batch, *shape = self.result
        if batch != self.batch or not shape:
            raise self.refused(
                "operations that keep the batch as the first dimension",
                f"a result shaped {self.result} for {self.batch} samples",
                "use flatten(1), or reshape to (N, ...)",
            )
        return (*shape,)

    def axis(self, name: str, dim: int) -> int:
        """Return a dimension of torch's, which counts the batch, as one of a sample's."""
        axis = dim % (len(self.torch_shape(name)) + 1) - 1
        if axis < 0:
            raise self.refused("operations on each sample by itself", "one over the batch", "leave it out")
        return axis

    def real(self, name: str) -> str:
        """Return the value as real numbers: the sums of a binary layer are cast (times an alpha of one)."""
        if self.values[name].dtype == "float32":
            return name
        return self._shaped_as(
            name, self.emit("scale", [name], alpha=np.ones(self.shape(name)[0], np.float32))
        )

    def as_map(self, name: str) -> str:
        """Return a sequence (C, L) as a map (C, 1, L), and a map as it is."""
        if len(self.shape(name)) != 2:
            return name
        shape = (self.shape(name)[0], 1, -1)
        return self._shaped_as(name, self.emit("reshape", [self.real(name)], {"shape": shape}))

    def as_torch(self, name: str) -> str:
        """Return the value as real numbers in the shape that it has in torch."""
        name, shape = self.real(name), self.torch_shape(name)
        if shape == self.shape(name):
            return name
        return self.emit("reshape", [name], {"shape": (*shape[:-1], -1)})

    def alike(self, *names: str) -> list[str]:
        """Return the values as real numbers, all as torch has them unless all are maps already."""
        maps = len({len(self.shape(name)) for name in names}) == 1
        return [self.real(name) if maps else self.as_torch(name) for name in names]

    def sign(self, name: str) -> str:
        """Return the signs of a value."""
        channels = self.shape(name)[0]
        return self.emit(
            "threshold",
            [name],
            threshold=np.zeros(channels, np.float32),
            direction=np.ones(channels, np.int8),
        )

    def refused(self, expected: str, found: str, fix: str) -> InputError:
        """Return the error that says what of the model the file cannot hold, and where it stands."""
        return InputError(self.where or "the model", expected=expected, found=found, fix=fix)

    def _shaped_as(self, name: str, made: str) -> str:
        self.torch_shapes[made] = self.torch_shape(name)
        return made

    def _name(self, op: str) -> str:
        base = ".".join(part for part in (self.module, _SUFFIX.get(op, "")) if part) or op
        name, count = base, 1
        while name in self.values:
            count += 1
            name = f"{base}.{count}"
        return name


def floats(tensor: Tensor) -> NDArray[np.float32]:
    """Return a constant of the model as float32."""
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())
