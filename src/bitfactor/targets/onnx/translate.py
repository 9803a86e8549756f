"""A model file becomes an ONNX model, operation by operation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from itertools import islice
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.signature import FreeSizes, Length

Form = Literal["standard", "qonnx"]

OPSET = 18
QONNX_DOMAIN = "qonnx.custom_op.general"


class OnnxBuilder:
    """Collects the ONNX nodes and constants that stand for the nodes of `graph`; see `Onnx`."""

    def __init__(self, graph: Graph, form: Form, free: FreeSizes | None = None) -> None:
        self.graph = graph
        self.form = form
        self.free = free
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

    def lengths(self, node: Node, attribute: str, own: Sequence[int]) -> list[int | str]:
        entries = self.free.lengths.get(node.name, {}).get(attribute) if self.free else None
        return [
            n if entry is None else self._computed(entry)
            for n, entry in zip(own, entries or [None] * len(own), strict=True)
        ]

    def length(self, x: str, axis: int) -> int | str:
        return self._computed(Length(((x, axis),))) if self.free else self.shape(x)[axis]

    def whole(self, lengths: Sequence[int | str], name: str) -> str:
        if all(isinstance(length, int) for length in lengths):
            return self.constant(np.array(lengths, np.int64), name)
        return self.emit("Concat", [self._vector(length) for length in lengths], attributes={"axis": 0})

    def _vector(self, length: int | str) -> str:
        return length if isinstance(length, str) else self.constant(np.array([length]), f"integer:{length}")

    def _computed(self, length: Length) -> str:
        factors = [self._axis(*axis) for axis in length.axes]
        value = reduce(lambda a, b: self.emit("Mul", [a, b]), factors)
        for op, number, neutral in (
            ("Mul", length.factor, 1),
            ("Div", length.divisor, 1),
            ("Add", length.offset, 0),
        ):
            value = value if number == neutral else self.emit(op, [value, self._vector(number)])
        return value

    def _axis(self, value: str, axis: int) -> str:
        return self.emit("Shape", [value], attributes={"start": axis + 1, "end": axis + 2})

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32), f"number:{value:g}")

    def samples(self, x: str, output: str) -> str:
        shape = self.emit("Shape", [self.graph.input.name])
        count = self.emit("Slice", [shape, *map(self._vector, (0, 1))])
        rest = self.constant(np.array(self.shape(output)), f"{output}:shape")
        shape = self.emit("Concat", [count, rest], attributes={"axis": 0})
        return self.emit("Expand", [x, shape], output)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value of the graph, without the batch dimension."""
        return self.graph.values[name].shape

    def where_positive(self, condition: str, output: str | None = None) -> str:
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
            bits = self.emit("Slice", [bits, *map(self._vector, (0, signs.size))])
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


@checked
def to_onnx(model: ModelFile, form: Form = "standard") -> onnx.ModelProto:
    """Translate `model` to ONNX, with a batch dimension of any size, and sizes left open that may differ.

    They are those of the file alone where a node has to be written for one size, see `written_for_one_size`.

    Parameters
    ----------
    form
        - `standard`: operators of ONNX alone (opset 18). A sign is a comparison. A binary weight is stored as
          one bit and becomes the -1 and +1 of an ordinary convolution when a runtime folds constants.
        - `qonnx`: signs of activations and weights are `BipolarQuant` nodes, as compilers for FPGAs read
          them, and binary weights stand in float32. The file defines that operator, so that any runtime
          which knows functions of ONNX runs it too.

    Returns
    -------
    A model whose metadata holds what the model file knows, each as JSON: labels, input specification,
    skeleton, provenance and open sizes. All its values are float32: sums and signs as well.

    Example
    -------
    >>> onnx.save(to_onnx(bitfactor.format.load("net.safetensors")), "net.onnx")
    """
    graph = model.graph
    builder = OnnxBuilder(graph, form, model.free)
    for node in graph.nodes:
        OPERATIONS[node.op].onnx(builder, node, *node.inputs)
    outputs, dimensions = _outputs(builder), _dimensions(model, form)
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


def other_graphs(model: ModelFile) -> list[Graph]:
    """Return the graph at other sizes of the input that the model takes, at two where any are free."""
    if model.free is None:
        return [model.graph_for(shape) for shape in model.other_shapes]
    return [*islice(_at_free_sizes(model), 2)]


def _at_free_sizes(model: ModelFile) -> Iterator[Graph]:
    """Each free length grows by another number of its steps; where they must be alike, by the same."""
    assert model.free is not None
    for steps in (1, 2, -1):
        for apart in (1, 0):
            shapes = [[*value.shape] for value in model.graph.inputs]
            for i, (number, axis, step) in enumerate(model.free.axes):
                shapes[number][axis] += steps * step * (1 + apart * i)
            if min(map(min, shapes)) < 1:
                continue
            try:
                graph = model.graph_for(*map(tuple, shapes))
            except InputError:
                continue
            yield graph
            break


def written_for_one_size(model: ModelFile, form: Form) -> Node | None:
    """Return the first node whose ONNX holds the input's size; None if all sizes share it."""
    for other in other_graphs(model):
        for node, same in zip(model.graph.nodes, other.nodes, strict=True):
            if _translated(model, model.graph, node, form) != _translated(model, other, same, form):
                return node
    return None


def _translated(model: ModelFile, graph: Graph, node: Node, form: Form) -> list[bytes]:
    builder = OnnxBuilder(graph, form, model.free)
    OPERATIONS[node.op].onnx(builder, node, *node.inputs)
    parts: list[Any] = [*builder.nodes, *builder.constants.values()]
    return [part.SerializeToString(deterministic=True) for part in parts]


def _dimensions(model: ModelFile, form: Form) -> dict[str, list[str | int]]:
    """Return the dimensions of every value; those that depend on the input's shape are symbols."""
    others = [] if written_for_one_size(model, form) else other_graphs(model)
    graphs = [model.graph, *others]
    sizes = {
        name: [*zip(*(g.values[name].shape for g in graphs), strict=True)] for name in model.graph.values
    }
    symbols = _free_symbols(model, sizes)

    def dimension(name: str, axis: int) -> str | int:
        lengths: tuple[int, ...] = sizes[name][axis]
        if len(set(lengths)) == 1:
            return lengths[0]
        any_of = " or ".join(map(str, lengths)) if model.free is None else f"{name}_{axis + 1}"
        return symbols.get(lengths, any_of)

    return {name: ["N", *(dimension(name, axis) for axis in range(len(sizes[name])))] for name in sizes}


def _free_symbols(model: ModelFile, sizes: Mapping[str, Sequence[tuple[int, ...]]]) -> dict[Any, str]:
    """Return the names of the free lengths, by what they are at the sizes that are looked at."""
    found: dict[Any, str] = {}
    for number, axis, _ in model.free.axes if model.free else ():
        value = model.graph.inputs[number]
        of_image = {1: "height", 2: "width"} if len(value.shape) == 3 else {}
        found.setdefault(sizes[value.name][axis], of_image.get(axis, f"{value.name}_{axis + 1}"))
    return found


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
        "shapes": model.free and {value.name: value.shape for value in model.graph.inputs},
    }
    return {name: json.dumps(value, sort_keys=True) for name, value in known.items() if value}
