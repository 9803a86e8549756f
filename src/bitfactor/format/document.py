"""The JSON document of a model file: what it says of a model, and how it becomes one with the tensors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import as_tuples, expect, expect_within, record
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec, Skeleton
from bitfactor.format.bits import are_signs, of_flat_bits
from bitfactor.format.graph import Graph, Value
from bitfactor.format.model import ModelFile
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.operation import Node
from bitfactor.format.signature import FreeSizes, Signature

# 1 has one input of float32, and outputs by themselves or in a tuple; 3 also has weights of -1 and +1 as bits
# beside real inputs.
FORMAT_VERSION = 3
_RULES = {
    "sign": "-1 for x <= 0, +1 for x > 0",
    "padding": "after the sign; pad_value 0 adds nothing to the sum",
    "bits": "1 is +1; channel c is bit c % 64 of word c // 64; unused bits are 0",
    "weight_order": "O, kh, kw, C",
}

# What each field of the document may be. What an operation's attributes may be is the operation's affair, and
# whether shapes and names fit the graph's.
_OBJECT, _SHAPE, _NAMES = Mapping[str, Any], Sequence[int], Sequence[str]
_VALUE = {"name": str, "shape": _SHAPE, "kind": str}
_NODE = {**_VALUE, "op": str, "inputs": _NAMES, "attributes": _OBJECT, "tensors": _NAMES}
_DOCUMENT = {
    "format_version": int,
    "input": _OBJECT,
    "nodes": Sequence[dict[str, Any]],
    "outputs": _NAMES,
    "input_spec": _OBJECT | None,
    "labels": _NAMES,
    "provenance": _OBJECT,
}
_LATER = {  # where the file has them
    "other_inputs": Sequence[dict[str, Any]],
    "other_shapes": Sequence[Sequence[int]],
    "report": _OBJECT,
    "skeleton": _OBJECT | None,
    "signature": _OBJECT | None,
    "golden_inputs": _SHAPE,
    "free": _OBJECT | None,
    "ranges": _OBJECT,
}


def _expect_document(document: Any) -> None:
    """Raise InputError unless each field of the document is of its type."""
    later = {name: kind for name, kind in _LATER.items() if name in document}
    _expect_fields("metadata", document, {**_DOCUMENT, **later})
    _expect_fields("input", document["input"], _VALUE)
    for entry in document["nodes"]:
        _expect_fields("a node", entry, _NODE)
        expect("a node: signs", signs := entry.get("signs", {}), _OBJECT)
        for role, shape in signs.items():
            expect(f"a node: the signs of {role!r}", shape, _SHAPE)
    for entry in document.get("other_inputs", ()):
        _expect_fields("an input", entry, {"name": str, "shape": _SHAPE})


def _expect_fields(where: str, values: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if name not in values:
            raise InputError(where, expected=f"the field {name!r}", found="none", fix="export it again")
        expect(f"{where}: {name}", values[name], kind)


def describe(model: ModelFile) -> dict[str, Any]:
    graph = model.graph
    return {
        "format_version": _version(model),
        "rules": _RULES,
        "input": {"name": graph.input.name, "shape": graph.input.shape, "kind": graph.input.dtype},
        "other_shapes": model.other_shapes,
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "inputs": node.inputs,
                "attributes": node.attributes,
                "tensors": sorted(node.tensors),
                "shape": graph.values[node.name].shape,
                "kind": graph.values[node.name].dtype,
            }
            | _described_signs(node)
            for node in graph.nodes
        ],
        "outputs": graph.outputs,
        "input_spec": asdict(model.input_spec) if model.input_spec else None,
        "labels": model.labels,
        "skeleton": _described(model.skeleton) if model.skeleton else None,
        "bytes": model.tensor_bytes(),
        "provenance": dict(model.provenance),
        "report": dict(model.report),
        **({"ranges": dict(model.ranges)} if model.ranges else {}),
    } | _described_call(model)


def _described_signs(node: Node) -> dict[str, Any]:
    """Return the shapes of the tensors that are stored as bits one behind the other."""
    signs = {role: array.shape for role, array in node.tensors.items() if are_signs(role, array)}
    return {"signs": signs} if signs else {}


def _tensor(entry: Mapping[str, Any], role: str, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    stored = tensors[f"{entry['name']}.{role}"]
    shapes = entry.get("signs", {})
    return of_flat_bits(stored, shapes[role]) if role in shapes else stored


def _described_call(model: ModelFile) -> dict[str, Any]:
    """Return what only files of version 2 and later have."""
    if _version(model) == 1:
        return {}
    others = [{"name": value.name, "shape": value.shape} for value in model.graph.others]
    signature = model.signature.described() if model.signature else None
    free = {"free": model.free.described()} if model.free else {}
    return {
        "other_inputs": others,
        "signature": signature,
        "golden_inputs": sorted(model.golden_integers),
        **free,
    }


def _version(model: ModelFile) -> int:
    """Return the oldest version of the format that has all that a model needs."""
    tensors = (pair for node in model.graph.nodes for pair in node.tensors.items())
    if any(are_signs(role, array) for role, array in tensors):
        return FORMAT_VERSION
    return 2 if model.graph.others or model.signature or model.free else 1


def restore(document: dict[str, Any], tensors: dict[str, NDArray[Any]], max_bytes: int | None) -> ModelFile:
    _expect_document(document)
    signs = (shape for entry in document["nodes"] for shape in entry.get("signs", {}).values())
    expect_within(sum(map(prod, signs)), max_bytes, "signs that are stored as bits")
    if document["format_version"] not in range(1, FORMAT_VERSION + 1):
        raise InputError(
            "format version",
            expected=f"1 to {FORMAT_VERSION}",
            found=str(document["format_version"]),
            fix="update bitfactor",
        )
    nodes = tuple(
        Node(
            entry["name"],
            entry["op"],
            tuple(entry["inputs"]),
            {name: as_tuples(value) for name, value in entry["attributes"].items()},
            {role: _tensor(entry, role, tensors) for role in entry["tensors"]},
        )
        for entry in document["nodes"]
    )
    entry = document["input"]
    others = tuple(
        Value(other["name"], tuple(other["shape"]), "float32") for other in document.get("other_inputs", ())
    )
    graph = Graph(
        Value(entry["name"], tuple(entry["shape"]), entry["kind"]), nodes, tuple(document["outputs"]), others
    )
    expect_of_files(graph)
    for entry in document["nodes"]:
        value = graph.values[entry["name"]]
        if (value.shape, value.dtype) != (tuple(entry["shape"]), entry["kind"]):
            raise ValueError(
                f"{entry['name']} is stated as {entry['kind']} {entry['shape']}, computed as {value}"
            )
    spec, skeleton = document["input_spec"], document.get("skeleton")
    signature, free = document.get("signature"), document.get("free")
    has_integers = "golden/integer/0" in tensors
    return ModelFile(
        graph,
        tuple(tensors[f"golden/output/{i}"] for i in range(len(graph.outputs))),
        record(InputSpec, spec) if spec else None,
        tuple(document["labels"]),
        _skeleton(skeleton) if skeleton else None,
        document["provenance"],
        as_tuples(document.get("other_shapes", ())),
        document.get("report", {}),
        Signature.restored(signature) if signature else None,
        {i: _golden_integers(i, graph, tensors) for i in document.get("golden_inputs", ())},
        FreeSizes.restored(free, _free_tensors(free, tensors)) if free else None,
        document.get("ranges", {}),
        tuple(tensors[f"golden/integer/{i}"] for i in range(len(graph.outputs) * has_integers)),
    )


def _golden_integers(number: int, graph: Graph, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    given, shape = tensors[f"golden/input/{number}"], (1, *graph.inputs[number].shape)
    if given.dtype != np.float32 or given.shape != shape:
        raise ValueError(f"golden input {number} of {given.dtype} {given.shape}, not of float32 {shape}")
    return given


def _free_tensors(
    free: dict[str, Any], tensors: dict[str, NDArray[Any]]
) -> dict[str, dict[str, NDArray[Any]]]:
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for node, entries in free["lengths"].items():
        for name in entries:
            if f"free/{node}.{name}" in tensors:
                found.setdefault(node, {})[name] = tensors[f"free/{node}.{name}"]
    return found


def _described(skeleton: Skeleton) -> dict[str, Any]:
    return {"joints": skeleton.keypoints, "flip_pairs": skeleton.flip_pairs, "edges": skeleton.edges}


def _skeleton(values: dict[str, Any]) -> Skeleton:
    """Return a skeleton; in the file, as in the first ones, its keypoints are called joints."""
    pairs, edges = as_tuples(values["flip_pairs"]), as_tuples(values["edges"])
    return Skeleton(tuple(values["joints"]), pairs, edges)


def digest_of(document: dict[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    import hashlib  # here, for a quick import of the rest

    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


def expect_of_files(graph: Graph) -> None:
    for node in graph.nodes:
        if not OPERATIONS[node.op].in_files:
            where, expected = f"node {node.name!r}", "an operation that a file holds"
            raise InputError(where, expected=expected, found=repr(node.op), fix="export the model again")
