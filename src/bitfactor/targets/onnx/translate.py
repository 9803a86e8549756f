"""A model file becomes an ONNX model, operation by operation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bitfactor.format import Graph, ModelFile
from bitfactor.format.operations import OPERATIONS

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

    def samples(self, x: str, output: str) -> str:
        """Return x (1, ...) for each sample of the input."""
        ends = (self.constant(np.array([n]), f"integer:{n}") for n in (0, 1))
        count = self.emit("Slice", [self.emit("Shape", [self.graph.input.name]), *ends])
        rest = self.constant(np.array(self.shape(output)), f"{output}:shape")
        shape = self.emit("Concat", [count, rest], attributes={"axis": 0})
        return self.emit("Expand", [x, shape], output)

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


_OPSETS: dict[Form, dict[str, int]] = {
    "standard": {"": OPSET},
    "qonnx": {"": OPSET, QONNX_DOMAIN: 1},
}
_IR_VERSION = 8  # that of opset 18: newer runtimes read it as well


def to_onnx(model: ModelFile, form: Form = "standard") -> onnx.ModelProto:
    """Translate `model` to ONNX, with a batch dimension of any size, and image sizes that differ left open.

    Parameters
    ----------
    form
        - `standard`: operators of ONNX alone (opset 18). A sign is a comparison; a binary weight is stored as
          one bit and becomes the -1 and +1 of an ordinary convolution when a runtime folds constants.
        - `qonnx`: signs of activations and weights are `BipolarQuant` nodes, as compilers for FPGAs read
          them, and binary weights stand in float32. The file defines that operator, so that any runtime
          which knows functions of ONNX runs it too.

    Returns
    -------
    A model whose metadata holds what the model file knows: labels, input specification, skeleton and
    provenance, each as JSON. All its values are float32: sums and signs as well.

    Example
    -------
    >>> onnx.save(to_onnx(bitfactor.format.load("net.safetensors")), "net.onnx")
    """
    graph = model.graph
    builder = OnnxBuilder(graph, form)
    for node in graph.nodes:
        OPERATIONS[node.op].onnx(builder, node, *node.inputs)
    outputs, dimensions = _outputs(builder), _dimensions(model)
    inner = [node.name for node in graph.nodes if node.name not in graph.outputs]
    proto = helper.make_model(
        helper.make_graph(
            builder.nodes,
            "bitfactor",
            [_value(value.name, dimensions[value.name]) for value in graph.inputs],
            [_value(name, dimensions[value]) for name, value in outputs.items()],
            list(builder.constants.values()),
            value_info=[_value(name, dimensions[name]) for name in inner],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS[form].items()],
        functions=[_bipolar_quant()] if form == "qonnx" else [],
        ir_version=_IR_VERSION,
        producer_name="bitfactor",
    )
    helper.set_model_props(proto, _metadata(model))
    return proto


def _outputs(builder: OnnxBuilder) -> dict[str, str]:
    """Return name -> value of the graph; an output that is the input, or named twice, is copied."""
    outputs: dict[str, str] = {}
    for name in builder.graph.outputs:
        copied = name in outputs or name in [value.name for value in builder.graph.inputs]
        outputs[builder.emit("Identity", [name]) if copied else name] = name
    return outputs


def _dimensions(model: ModelFile) -> dict[str, list[str | int]]:
    """Return the dimensions of every value; those that depend on the input's shape are symbols."""
    graphs = [model.graph, *(model.graph_for(shape) for shape in model.other_shapes)]
    sizes = {name: zip(*(g.values[name].shape for g in graphs), strict=True) for name in model.graph.values}
    return {name: ["N", *map(_dimension, sizes[name])] for name in sizes}


def _dimension(sizes: tuple[int, ...]) -> str | int:
    """Return the one size, or a symbol that names them all."""
    return sizes[0] if len(set(sizes)) == 1 else " or ".join(map(str, sizes))


def _value(name: str, dimensions: list[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dimensions)


def _bipolar_quant() -> onnx.FunctionProto:
    """BipolarQuant(x, scale), as QONNX defines it: scale where x >= 0, else -scale."""
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Neg", ["scale"], ["negative"]),
        helper.make_node("GreaterOrEqual", ["x", "zero"], ["rises"]),
        helper.make_node("Where", ["rises", "scale", "negative"], ["y"]),
    ]
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_function(QONNX_DOMAIN, "BipolarQuant", ["x", "scale"], ["y"], nodes, opset)


def _metadata(model: ModelFile) -> dict[str, str]:
    known = {
        "labels": model.labels,
        "input_spec": model.input_spec and asdict(model.input_spec),
        "skeleton": model.skeleton and asdict(model.skeleton),
        "provenance": dict(model.provenance),
    }
    return {name: json.dumps(value, sort_keys=True) for name, value in known.items() if value}
