"""An ONNX graph in the making: nodes, constants, and signs in the two forms that a file may have.

Every value is float32 there, sums and signs too, and keeps the name that it has in the `Graph`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bitfactor.format import Graph

Form = Literal["standard", "qonnx"]

OPSET = 18
QONNX_DOMAIN = "qonnx.custom_op.general"


class OnnxBuilder:
    """Collects the ONNX nodes and constants that stand for the nodes of `graph`."""

    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph = graph
        self.form = form
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._names = set(graph.values)
        self._shared: dict[tuple[str, bytes, str], str] = {}

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        output: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
    ) -> str:
        """Append a node and return the name of its value: `output`, or a new one."""
        output = output or self._fresh(f"{inputs[0]}:{op}")
        node = helper.make_node(op, list(inputs), [output], name=output, domain=domain)
        node.attribute.extend(helper.make_attribute(*item) for item in sorted((attributes or {}).items()))
        self.nodes.append(node)
        return output

    def constant(self, array: NDArray[Any], name: str) -> str:
        """Store a constant and return its name, beginning with `name`; equal small ones are stored once."""
        key = (str(array.dtype), array.tobytes(), str(array.shape)) if array.size <= 8 else None
        if key is not None and key in self._shared:
            return self._shared[key]
        name = self._fresh(name)
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        if key is not None:
            self._shared[key] = name
        return name

    def number(self, value: float) -> str:
        """Store a float32 number and return its name."""
        return self.constant(np.array(value, np.float32), f"number:{value:g}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value of the graph, without the batch dimension."""
        return self.graph.values[name].shape

    def where_positive(self, condition: str, output: str | None = None) -> str:
        """Return +1 where the condition holds, else -1."""
        return self.emit("Where", [condition, self.number(1), self.number(-1)], output)

    def bipolar(self, x: str, output: str | None = None) -> str:
        """Return QONNX's sign of x, which is +1 for 0."""
        return self.emit("BipolarQuant", [x, self.number(1)], output, domain=QONNX_DOMAIN)

    def signs(self, signs: NDArray[np.int8], name: str) -> str:
        """Store -1 and +1 of any shape as a constant, and return the name of their float32 value.

        Standard ONNX has no type of one bit: eight of them stand in a byte, which a runtime takes apart once,
        when it folds constants. QONNX wants the numbers, in float32, behind a BipolarQuant.
        """
        if self.form == "qonnx":
            return self.bipolar(self.constant(signs.astype(np.float32), name))
        octets = self.constant(np.packbits(signs.ravel() > 0)[:, None], f"{name}:bits")
        masks = self.constant(1 << np.arange(7, -1, -1, dtype=np.uint8), "masks")
        bits = self.emit("BitwiseAnd", [octets, masks])
        bits = self.emit("Cast", [bits], attributes={"to": onnx.TensorProto.BOOL})
        if signs.size % 8:
            bits = self.emit("Reshape", [bits, self.constant(np.array([-1]), "flat")])
            bounds = (self.constant(np.array([n]), f"integer:{n}") for n in (0, signs.size))
            bits = self.emit("Slice", [bits, *bounds])
        shape = self.constant(np.array(signs.shape), f"{name}:shape")
        return self.emit("Reshape", [self.where_positive(bits), shape])

    def _fresh(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name}:{count}"
        self._names.add(unique)
        return unique
