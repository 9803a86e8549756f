"""All that is known of an exported file without running it; needs no torch."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from bitfactor.common.checks import checked
from bitfactor.common.files import expect_output, write_file
from bitfactor.common.result import Result, text_table
from bitfactor.format import Graph, InputSpec, ModelFile, Node, drawing, load
from bitfactor.format.graph import Cost, cost, total
from bitfactor.format.signature import FreeSizes
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import Program, program_of
from bitfactor.runtime.zoo import locate

_SHOWN, _LETTERS = 8, 60
_TRAINED = ("epoch", "epochs", "step", "metric")
"""Keys of the provenance that tell how far the network was trained."""


@dataclass(frozen=True)
class Inspection(Result):
    """What an exported file holds: `description` as plain types, `model` to look further.

    `program` is what the compiled core runs, where it was asked for.
    """

    description: Mapping[str, Any]
    model: ModelFile
    program: Program | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self.description, **({"program": _program(self.program)} if self.program else {})}

    def __str__(self) -> str:
        if self.program is None:
            return _as_text(self.description, self.model)
        listed = _program(self.program)
        lines = [f"{i:4}  {instruction}" for i, instruction in enumerate(listed["instructions"])]
        return "\n".join([*lines, f"{len(lines)} instructions, {listed['arena_bytes']:,} bytes of arena"])


@checked
def inspect(
    model: str | os.PathLike[str],
    *,
    svg: str | os.PathLike[str] | None = None,
    program: bool = False,
    overwrite: bool = False,
) -> Inspection:
    """Show what an exported file holds: its origin, every operation, bytes and multiply-accumulates.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    svg
        Also draw the network, as an SVG image, .svg.
    program
        Show the instructions for the compiled core, those that `freeze` writes. A buffer is its place in the
        arena, pixels, channels and whether they are signs. A window is the sizes of input, output, kernel,
        stride, padding and dilation.
    overwrite
        Replace the SVG file even where it is not one that bitfactor wrote.

    Raises
    ------
    InputError
        If the file cannot be read.

    Example
    -------
    >>> bitfactor.inspect("digits").to_dict()["totals"]["binary_macs"]
    """
    path = locate(model)
    if svg is not None:
        expect_output(svg, [".svg"], overwrite=overwrite, flag="--svg")
    loaded = load(path)
    instructions = program_of(packed(loaded.graph)) if program else None
    if svg is not None:
        write_file(svg, drawing.svg(loaded, path.name))
    return Inspection(_describe(path, loaded), loaded, instructions)


def _program(program: Program) -> dict[str, Any]:
    instructions = [str(i) for layer in program.layers for i in layer.instructions]
    return {"arena_bytes": program.arena_bytes, "instructions": instructions}


def _describe(path: Path, model: ModelFile) -> dict[str, Any]:
    content = path.read_bytes()
    with safe_open(path, framework="numpy") as file:
        document = json.loads(file.metadata()["bitfactor"])
    return {
        "file": str(path),
        "format_version": document["format_version"],
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "content_sha256": document["sha256"],
        "input": asdict(model.graph.input),
        "other_inputs": [asdict(value) for value in model.graph.others],
        "types": model.called.types,
        "returns": model.called.described()["outputs"],
        "other_shapes": model.other_shapes,
        "free_axes": model.free.axes if model.free else (),
        "outputs": [asdict(model.graph.values[name]) for name in model.graph.outputs],
        "input_spec": asdict(model.input_spec) if model.input_spec else None,
        "labels": model.labels,
        "skeleton": asdict(model.skeleton) if model.skeleton else None,
        "provenance": dict(model.provenance),
        "rules": document["rules"],
        "nodes": [_describe_node(node, model.graph) for node in model.graph.nodes],
        "totals": {**asdict(total(model.graph)), "binary_fraction": total(model.graph).binary_fraction},
        "report": dict(model.report),
    }


def _describe_node(node: Node, graph: Graph) -> dict[str, Any]:
    value = graph.values[node.name]
    tensors = {
        role: {"type": str(tensor.dtype), "shape": tensor.shape, "bytes": tensor.nbytes}
        for role, tensor in sorted(node.tensors.items())
    }
    return {
        "name": node.name,
        "op": node.op,
        "inputs": node.inputs,
        "shape": value.shape,
        "dtype": value.dtype,
        "attributes": dict(node.attributes),
        "tensors": tensors,
        **asdict(cost(node, graph)),
    }


def _as_text(description: Mapping[str, Any], model: ModelFile) -> str:
    spent = total(model.graph)
    other = description["bytes"] - spent.binary_bytes - spent.real_bytes
    macs = spent.binary_macs + spent.real_macs
    return "\n".join(
        [
            f"{description['file']}: model file of format version {description['format_version']}",
            "",
            *(f"{name:11} {text}" for name, text in _header(description, model).items()),
            "",
            _table(model.graph),
            "",
            f"{description['bytes']:,} bytes: {spent.binary_bytes:,} of binary weights,"
            f" {spent.real_bytes:,} of real numbers, {other:,} of graph and golden values",
            f"{macs:,} multiply-accumulates: {spent.binary_macs:,} of 1 bit, {spent.real_macs:,} real"
            f" ({spent.binary_fraction:.1%} of 1 bit)",
            *(f"warning at export: {warning}" for warning in model.report.get("warnings", ())),
        ]
    )


def _header(description: Mapping[str, Any], model: ModelFile) -> dict[str, str]:
    graph = model.graph
    shapes = (graph.input.shape, *model.other_shapes)
    found = {
        "sha256": description["sha256"],
        "input": " or ".join(_shape(shape) for shape in shapes) + f" {model.called.types[0]}",
        **({"input": _inputs(model)} if graph.others or model.free else {}),
        "images": _images(model.input_spec) if model.input_spec else "",
        "outputs": _outputs(model),
        "labels": _listed(model.labels),
        "keypoints": _listed(model.skeleton.keypoints) if model.skeleton else "",
        "trained": _trained(model.provenance),
        "provenance": ", ".join(
            f"{name} {_short(text)}"
            for name, text in sorted(model.provenance.items())
            if name not in _TRAINED
        ),
        **{name.replace("_", " "): rule for name, rule in description["rules"].items()},
    }
    return {name: text for name, text in found.items() if text}


def _inputs(model: ModelFile) -> str:
    free, scalars = model.free or FreeSizes(()), model.called.scalar_inputs
    return ", ".join(
        f"{value.name} {kind} shaped {'(N,)' if i in scalars else free.shown(i, value.shape)}"
        for i, (value, kind) in enumerate(zip(model.graph.inputs, model.called.types, strict=True))
    )


def _outputs(model: ModelFile) -> str:
    values, scalars = model.graph.values, model.called.scalar_outputs
    return ", ".join(
        f"{name} shaped {'(N,)' if i in scalars else _shape(values[name].shape)}"
        for i, name in enumerate(model.graph.outputs)
    )


def _trained(provenance: Mapping[str, str]) -> str:
    """Return how far a network was trained: "epoch 3 of 8, step 1500, metric ...", what of it is known."""
    known = {name: provenance[name] for name in _TRAINED if name in provenance}
    if {"epoch", "epochs"} <= known.keys():
        known["epoch"] += f" of {known.pop('epochs')}"
    return ", ".join(f"{name} {text}" for name, text in known.items())


def _images(spec: InputSpec) -> str:
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (spec.mean, spec.std))
    return f"resized to {_shape(spec.resize)}, cropped to {_shape(spec.size)}, mean {mean}, std {std}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)}: {shown}" if names else ""


def _short(text: str) -> str:
    """Cut what is long; --json has all of it."""
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."


def _table(graph: Graph) -> str:
    head = ["name", "operation", "shape", "dtype", "binary bytes", "real bytes", "1-bit MACs", "real MACs"]
    rows = [
        [
            node.name,
            node.op,
            _shape(graph.values[node.name].shape),
            graph.values[node.name].dtype,
            *_counts(cost(node, graph)),
        ]
        for node in graph.nodes
    ]
    rows.append(["total", "", "", "", *_counts(total(graph))])
    return text_table(head, rows, right=range(4, 8))


def _counts(spent: Cost) -> list[str]:
    counts = (spent.binary_bytes, spent.real_bytes, spent.binary_macs, spent.real_macs)
    return [f"{count:,}" if count else "" for count in counts]


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
