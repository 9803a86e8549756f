"""The same network as ONNX, for other runtimes, checked with ONNX Runtime before it is written.

Needs the packages of `bitfactor[onnx]`.
"""

import os
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from bitfactor.common.arrays import relative_difference, same_class
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_name, expect_output, write_file
from bitfactor.common.result import Result
from bitfactor.format import Graph, ModelFile, Node
from bitfactor.format.graph import ARRAYS
from bitfactor.format.model import golden_input
from bitfactor.format.operations import OPERATIONS
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.runner import runner
from bitfactor.targets.onnx.translate import OPSET, Form, other_graphs, to_onnx, written_for_one_size

__all__ = ["OnnxReport", "export_onnx", "to_onnx"]


@dataclass(frozen=True)
class OnnxReport(Result):
    """The outcome of `export_onnx`.

    From the input to the last output, ONNX Runtime and ours differ by `max_difference` of the largest output.
    They give the same class (the largest entry of the first output) for `same_class` of `checked_inputs`.
    That they differ at all is rounding: each operation by itself was checked, see `bitfactor.targets.onnx`.
    `one_size` says why other sizes that the model file takes are not those of the ONNX file, where that is
    so. `int8` is the same network's file in int8, where one was written.
    """

    path: str
    form: str
    opset: int
    file_bytes: int
    checked_inputs: int
    same_class: int
    max_difference: float
    one_size: str | None = None
    int8: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.file_bytes:,} bytes, {_FORMS[self.form]}, opset {self.opset}\n"
            f"ONNX Runtime {onnxruntime.__version__} gives operation by operation what bitfactor gives;"
            f" end to end, the same class for {self.same_class} of {self.checked_inputs} inputs,"
            f" largest difference {self.max_difference:.1e} of the largest output"
            + (f"\n{self.one_size}" if self.one_size else "")
            + (f"\n{self.int8}: the same in int8, with ranges from training images" if self.int8 else "")
        )


Float = NDArray[np.float32]

_FORMS = {"standard": "standard ONNX", "qonnx": "QONNX"}


@checked
def export_onnx(
    model: ModelFile, path: str | os.PathLike[str], form: Form = "standard", *, overwrite: bool = False
) -> OnnxReport:
    """Write `model` to `path` as ONNX (see `to_onnx`), after ONNX Runtime has given the same.

    Compared are the golden input of the model file and a random one, and an input of each other shape.

    Raises
    ------
    InputError
        If an operation differs; the first is named. Also if `path` ends in .safetensors or cannot be written,
        or is a file that bitfactor did not write, without `overwrite`.

    Example
    -------
    >>> print(export_onnx(bitfactor.format.load("net.safetensors"), "net.onnx"))
    """
    expect_name(path, onnx=True)
    expect_output(path, overwrite=overwrite)
    proto = to_onnx(model, form)
    node = written_for_one_size(model, form)
    for graph in [] if node else other_graphs(model):
        check(graph, proto, *_made(graph, model))
    xs = [_samples(x, i in model.golden_integers) for i, x in enumerate(model.golden_inputs)]
    check(model.graph, proto, *xs)
    found, expected = list(run(proto, *xs).values()), runner(model.graph, instruction_sets()[0])(*xs)
    content = proto.SerializeToString(deterministic=True)
    write_file(path, content)
    return OnnxReport(
        path=str(path),
        form=form,
        opset=OPSET,
        file_bytes=len(content),
        checked_inputs=len(xs[0]),
        same_class=same_class(found[0], expected[0]),
        max_difference=max(relative_difference(y, z) for y, z in zip(found, expected, strict=True)),
        one_size=_why_one_size(model, node),
    )


def _made(graph: Graph, model: ModelFile) -> list[Float]:
    """Return inputs of a graph at another size: zeros where they are integers."""
    zero = (np.float32(i not in model.golden_integers) for i in range(len(graph.inputs)))
    return [golden_input(value.shape) * factor for value, factor in zip(graph.inputs, zero, strict=True)]


def _why_one_size(model: ModelFile, node: Node | None) -> str | None:
    if node is None:
        return None
    shapes = ", ".join(
        f"{value.name} (N, {', '.join(map(str, value.shape))})" for value in model.graph.inputs
    )
    return (
        f"the ONNX file takes {shapes} alone, where the model file takes other sizes too: "
        f"node {node.name!r} ({node.op}) is written for one size"
    )


def _samples(golden: Float, integers: bool) -> Float:
    """Return the golden sample of an input, and a second one: noise, unless it is of integers."""
    noise = np.random.default_rng(0).standard_normal(golden.shape, np.float32)
    return np.concatenate([golden, golden if integers else noise])


TOLERANCE = 1e-5


def run(proto: onnx.ModelProto, *xs: Float) -> dict[str, Float]:
    """Run an ONNX model; return its outputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    names = [output.name for output in proto.graph.output]
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        inputs = {value.name: x for value, x in zip(proto.graph.input, xs, strict=True)}
        outputs = session.run(names, inputs)
    except Exception as error:  # its errors have no other base
        raise _unlike("the ONNX model", "one that ONNX Runtime takes", str(error)) from error
    return dict(zip(names, outputs, strict=True))


def check(graph: Graph, proto: onnx.ModelProto, *xs: Float) -> None:
    """Compare each operation of `graph` on the values that ONNX Runtime has there for a batch.

    Raises
    ------
    InputError
        If the model is not valid ONNX, or an operation differs; the first is named.
    """
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise _unlike("the ONNX model", "one that the ONNX checker takes", str(error)) from error
    given = {value.name: x for value, x in zip(graph.inputs, xs, strict=True)}
    values = given | run(_giving_every_value(graph, proto), *xs)
    for node in graph.nodes:
        inputs = (values[name].astype(ARRAYS[graph.values[name].dtype]) for name in node.inputs)
        expected = OPERATIONS[node.op].reference(node, *inputs)
        if node.op == "constant":  # one sample for all
            expected = np.broadcast_to(expected, (len(xs[0]), *expected.shape[1:]))
        _compare(node, graph.values[node.name].dtype, values[node.name], expected)


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
