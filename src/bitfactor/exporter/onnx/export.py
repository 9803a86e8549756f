"""From a model file to an ONNX file, checked with ONNX Runtime before it is written."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bitfactor.atomic import replacing
from bitfactor.exporter.expectations import expect_name
from bitfactor.exporter.onnx.builder import OPSET, Form
from bitfactor.exporter.onnx.check import check, run
from bitfactor.exporter.onnx.translate import to_onnx
from bitfactor.exporter.parity import relative_difference
from bitfactor.format import ModelFile
from bitfactor.format.file import golden_input
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.session import runner

_Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class OnnxReport:
    """The outcome of `export_onnx`.

    From the input to the last output, ONNX Runtime and ours give the same class (the largest entry of the
    first output) for `same_class` of `checked_inputs`, and differ by `max_difference` of the largest output.
    That they differ at all is rounding: each operation by itself was checked, see
    `bitfactor.exporter.onnx.check`.
    """

    path: str
    form: str
    opset: int
    file_bytes: int
    checked_inputs: int
    same_class: int
    max_difference: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain types."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.file_bytes:,} bytes, {_FORMS[self.form]}, opset {self.opset}\n"
            f"ONNX Runtime {onnxruntime.__version__} gives operation by operation what bitfactor gives;"
            f" end to end, the same class for {self.same_class} of {self.checked_inputs} inputs,"
            f" largest difference {self.max_difference:.1e} of the largest output"
        )


_FORMS = {"standard": "standard ONNX", "qonnx": "QONNX"}


def export_onnx(model: ModelFile, path: str | os.PathLike[str], form: Form = "standard") -> OnnxReport:
    """Write `model` to `path` as ONNX (see `to_onnx`), after ONNX Runtime has given the same.

    Compared are the golden input of the model file and a random one, and an input of each other shape.

    Raises
    ------
    InputError
        If an operation differs, the first is named; or if `path` ends in .safetensors or cannot be written.

    Example
    -------
    >>> print(export_onnx(bitfactor.format.load("net.safetensors"), "net.onnx"))
    """
    expect_name(path, onnx=True)
    proto = to_onnx(model, form)
    for shape in model.other_shapes:
        check(model.graph_for(shape), proto, golden_input(shape))
    golden = model.golden_input
    x = np.concatenate([golden, np.random.default_rng(0).standard_normal(golden.shape, np.float32)])
    check(model.graph, proto, x)
    found, expected = list(run(proto, x).values()), runner(model.graph, instruction_sets()[0])(x)
    with replacing(path) as temporary:
        temporary.write_bytes(proto.SerializeToString(deterministic=True))
        file_bytes = temporary.stat().st_size
    return OnnxReport(
        path=str(path),
        form=form,
        opset=OPSET,
        file_bytes=file_bytes,
        checked_inputs=len(x),
        same_class=_same_class(found[0], expected[0]),
        max_difference=max(relative_difference(y, z) for y, z in zip(found, expected, strict=True)),
    )


def _same_class(found: NDArray[Any], expected: NDArray[Any]) -> int:
    first, second = (scores.reshape(len(scores), -1).argmax(1) for scores in (found, expected))
    return int((first == second).sum())
