"""Does ONNX Runtime do with the ONNX model what our runtime does with the graph?

Comparing outputs alone would not do, for the reason that `bitfactor.exporter.parity` gives: sums of real
numbers are rounded in another order, and a sign may change. So a copy of the model gives every value. Each
operation of the graph, as the reference has it, takes what ONNX Runtime has for its inputs and must give what
ONNX Runtime gives: signs and sums exactly, real numbers within `TOLERANCE` of the largest.
"""

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from bitfactor.errors import InputError
from bitfactor.exporter.parity import relative_difference
from bitfactor.format import Graph, Node
from bitfactor.format.operations import OPERATIONS

Float = NDArray[np.float32]

TOLERANCE = 1e-5


def run(proto: onnx.ModelProto, x: Float) -> dict[str, Float]:
    """Run an ONNX model that has one input; return its outputs by name.

    Raises
    ------
    InputError
        If ONNX Runtime does not take the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    names = [output.name for output in proto.graph.output]
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        outputs = session.run(names, {proto.graph.input[0].name: x})
    except Exception as error:  # its errors have no other base
        raise _unlike("the ONNX model", "one that ONNX Runtime takes", str(error)) from error
    return dict(zip(names, outputs, strict=True))


def check(graph: Graph, proto: onnx.ModelProto, x: Float) -> None:
    """Compare each operation of `graph` on the values that ONNX Runtime has there for a batch x.

    Raises
    ------
    InputError
        If the model is not valid ONNX, or an operation differs; the first is named.
    """
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise _unlike("the ONNX model", "one that the ONNX checker takes", str(error)) from error
    values = {graph.input.name: x} | run(_giving_every_value(graph, proto), x)
    for node in graph.nodes:
        inputs = (values[name].astype(_TYPES[graph.values[name].dtype]) for name in node.inputs)
        expected = OPERATIONS[node.op].reference(node, *inputs)
        _compare(node, graph.values[node.name].dtype, values[node.name], expected)


_TYPES = {"float32": np.float32, "int32": np.int32, "bit": np.int8}


def _compare(node: Node, kind: str, found: Float, expected: NDArray[np.generic]) -> None:
    where = f"node {node.name!r} ({node.op})"
    if found.shape != expected.shape:
        raise _unlike(where, f"shape {expected.shape}", str(found.shape))
    if kind != "float32":
        wrong = int((found != expected).sum())
        if wrong:
            raise _unlike(where, "the runtime's values exactly", f"{wrong} of {expected.size} that differ")
        return
    difference = relative_difference(found, expected)
    if not difference <= TOLERANCE:
        raise _unlike(where, f"the runtime's values within {TOLERANCE}", f"{difference:.1e}")


def _giving_every_value(graph: Graph, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the model whose outputs are all values of the graph, the nodes' in their order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.output[:]
    known = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    copy.graph.output.extend(known[node.name] for node in graph.nodes)
    return copy


def _unlike(where: str, expected: str, found: str) -> InputError:
    return InputError(
        where,
        expected=expected,
        found=found,
        fix="please report this model: the ONNX file would not do what it does",
    )
