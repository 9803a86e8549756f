"""`bitfactor.convert`: a binary network that others wrote as ONNX, as a file of 1-bit weights."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitfactor.common.checks import checked, expect_that, record
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.result import Result
from bitfactor.format import Graph, InputSpec, ModelFile, Node, Skeleton, save
from bitfactor.format.bits import are_signs
from bitfactor.format.graph import run
from bitfactor.format.model import golden_inputs
from bitfactor.format.operations.operation import Shape
from bitfactor.format.signature import FreeSizes
from bitfactor.runtime import Session

if TYPE_CHECKING:
    from bitfactor.exporter.reading import Reading


@dataclass(frozen=True)
class Converted(Result):
    """A file that was written from ONNX.

    `free_axes` are (input, axis of a sample, step) of the sizes that it leaves open, as the ONNX file does.
    `binary`, `half_binary`, whose weights alone are signs, and `real` are its layers. ONNX's evaluator and
    the file give the same class for `same_class` of `checked_inputs` samples of noise, and differ by
    `max_difference` of the largest output. Each operation by itself gives the same, signs and sums exactly.
    """

    path: Path
    input_shape: tuple[int, ...]
    free_axes: tuple[tuple[int, int, int], ...]
    file_bytes: int
    source_bytes: int
    binary: tuple[str, ...]
    half_binary: tuple[str, ...]
    real: tuple[str, ...]
    checked_inputs: int
    same_class: int
    max_difference: float
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.file_bytes:,} bytes, of {self.source_bytes:,} as ONNX; an input is "
            f"{FreeSizes(self.free_axes).shown(0, self.input_shape)}",
            f"{len(self.binary)} layers binary, {len(self.half_binary)} in their weights alone; "
            f"real-valued: {', '.join(self.real) or 'none'}",
            "each operation gives what ONNX gives; end to end, the same class for "
            f"{self.same_class} of {self.checked_inputs} inputs of noise, largest difference "
            f"{self.max_difference:.1e} of the largest output",
        ]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])


@checked
def convert(
    network: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    labels: Sequence[str] = (),
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    overwrite: bool = False,
) -> Converted:
    """Write a binary network that comes as ONNX as a file of 1-bit weights, checked before it appears.

    A layer is binary if its weight has two values -a and +a in each filter, and its input is a sign. A sign
    is a comparison, `Sign`, `BipolarQuant` or a `MultiThreshold` of one threshold. Where the weight alone is
    binary, it takes 1 bit in the file, and the layer computes with real numbers. QONNX, Brevitas, FINN and
    larq (by tf2onnx) write them. An input of channels last that is only transposed becomes one of channels
    first. Sizes that the ONNX file leaves open stay open, in steps that are found by reading it at several.

    Parameters
    ----------
    network
        An ONNX file, of opset 7 or newer.
    output
        The file to write, NAME.safetensors.
    labels
        Names of the classes, one for each output.
    mean, std
        One number for each channel of an image. The network's input is (x / 255 - mean) / std of an image
        that is resized to it. With them `predict` takes the file.
    overwrite
        Replace a file that bitfactor did not write.

    Raises
    ------
    InputError
        If the ONNX file is damaged or of an opset that is not known. If a node of it cannot be held in a
        file: weights of three or four values, an operator that is not read. If no layer is binary, or
        `output` cannot be written.

    Example
    -------
    >>> print(bitfactor.convert("TFC_1W1A.onnx", "tfc.safetensors"))
    """
    output = expect_output(output, [".safetensors"], overwrite=overwrite, flag="--output")
    imported("onnx", "bitfactor.convert", "onnx,train")
    reading: Reading = imported("bitfactor.exporter.reading", "bitfactor.convert", "onnx,train").read(network)
    graph = reading.graph
    binary, others = _layers(graph, "binary_"), _layers(graph, "")
    half = tuple(node for node in others if are_signs("weight", node.tensors["weight"]))
    if not binary and not half:
        raise InputError(
            network,
            expected="a layer with weights of two values",
            found="none: each layer is real-valued",
            fix="convert a binary network",
        )
    known, warnings = _known(reading.metadata), reading.warnings
    classes, told = graph.values[graph.outputs[0]].shape[0], known.get("labels", ())
    if labels:
        expect_that(len(labels) == classes, "labels", expected=f"{classes} names", found=len(labels))
        told = labels
    elif len(told) not in (0, classes):  # its last layer was exchanged since
        unfit = f"the ONNX file names {len(told)} classes, and the network has {classes}"
        told, warnings = (), (*warnings, f"{unfit}: the names are left out")
    model = _model(reading, {**known, "labels": told}, Path(network).name)
    if mean or std:
        model = replace(model, input_spec=_spec(graph.input.shape, mean, std))
    with replacing(output) as temporary:
        save(temporary, model)
        Session(temporary).verify()
        file_bytes = temporary.stat().st_size
    return Converted(
        path=output,
        input_shape=graph.input.shape,
        free_axes=reading.free.axes if reading.free else (),
        file_bytes=file_bytes,
        source_bytes=Path(network).stat().st_size,
        binary=_names(binary),
        half_binary=_names(half),
        real=_names(node for node in others if node not in half),
        checked_inputs=reading.checked_inputs,
        same_class=reading.same_class,
        max_difference=reading.max_difference,
        warnings=warnings,
    )


def _spec(shape: Shape, mean: Sequence[float], std: Sequence[float]) -> InputSpec:
    """Return how an image becomes an input of this shape."""
    is_image = len(shape) == 3 and len(mean) == shape[0]
    expected = "one number for each channel of an image"
    expect_that(is_image, "mean", expected=expected, found=f"{len(mean)} for an input {shape}")
    return InputSpec(shape[1:], shape[1:], tuple(mean), tuple(std))  # type: ignore[arg-type]


def _layers(graph: Graph, prefix: str) -> tuple[Node, ...]:
    return tuple(node for node in graph.nodes if node.op in (f"{prefix}conv2d", f"{prefix}linear"))


def _names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _model(reading: "Reading", known: Mapping[str, Any], source: str) -> ModelFile:
    """Return the file's content, with what is known of the network."""
    graph = reading.graph
    spec, skeleton = known.get("input_spec"), known.get("skeleton")
    return ModelFile(
        graph,
        run(graph, *golden_inputs(graph, {})),
        record(InputSpec, spec) if spec else None,
        tuple(known["labels"]),
        record(Skeleton, skeleton) if skeleton else None,
        known.get("provenance", {"source": source}),
        free=reading.free,
    )


def _known(metadata: Mapping[str, str]) -> dict[str, Any]:
    kinds = {"labels": list, "input_spec": dict, "skeleton": dict, "provenance": dict}
    try:
        known = {name: json.loads(metadata[name]) for name in kinds if name in metadata}
    except ValueError:  # another program's words under these names
        return {}
    return known if all(isinstance(value, kinds[name]) for name, value in known.items()) else {}
