"""One file per network: a safetensors file whose metadata holds the graph.

Tensors stand under `<node>.<role>`; binary weights as 64-bit words (see `bitfactor.format.bits`), one layout
on every machine. Metadata is one JSON document under the key `bitfactor`. It has format version, graph with
shapes, input specification, labels, sign and padding rules, byte accounting and provenance. A SHA-256 is of
all that and of the tensors. The outputs for a golden input, which is made and not stored, are tensors too,
for `Session.verify`. The same model gives the same bytes.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import isfinite, prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save_file

from bitfactor.common.checks import as_tuples, check_fields, checked, expect, expect_that, record
from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing
from bitfactor.common.image_spec import InputSpec, Skeleton
from bitfactor.format.bits import are_signs, flat_bits, of_flat_bits
from bitfactor.format.graph import Graph, Value, total
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.operation import Node, Shape
from bitfactor.format.signature import FreeSizes, Signature, plain

# 1 has one input of float32, and outputs by themselves or in a tuple; 3 also has weights of -1 and +1 as bits
# beside real inputs.
FORMAT_VERSION = 3
_RULES = {
    "sign": "-1 for x <= 0, +1 for x > 0",
    "padding": "after the sign; pad_value 0 adds nothing to the sum",
    "bits": "1 is +1; channel c is bit c % 64 of word c // 64; unused bits are 0",
    "weight_order": "O, kh, kw, C",
}


@dataclass(frozen=True)
class ModelFile:
    """All that a model file holds.

    `golden_outputs`, one (1, ...) per graph output, were computed at export from `golden_input`. A classifier
    has `labels`, a pose network a `skeleton`. `other_shapes` are shapes of the input, beside the graph's own,
    that the network also takes; `report` is what export said of its layers and checks. `signature` says how
    the network is called, where it is not with float32 and does not return one output or a tuple of them.
    `golden_integers` are the golden inputs of integers, by the number of the input: no rule can make them.
    `free` says which sizes of the inputs may be others. `ranges` are the largest magnitudes of its values on
    calibration samples, for precision `integer`. `integer_outputs` are its golden outputs.

    Raises
    ------
    InputError
        If one of them is not that.
    """

    graph: Graph
    golden_outputs: tuple[NDArray[np.float32], ...]
    input_spec: InputSpec | None = None
    labels: tuple[str, ...] = ()
    skeleton: Skeleton | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    other_shapes: tuple[Shape, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    signature: Signature | None = None
    golden_integers: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    free: FreeSizes | None = None
    ranges: Mapping[str, float] = field(default_factory=dict)
    integer_outputs: tuple[NDArray[np.float32], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "model file: ")
        for name, r in self.ranges.items():
            where = f"model file: range of {name!r}"
            expect(where, r, float)
            expect_that(isfinite(r) and r >= 0, where, expected="a magnitude", found=r)
        for name, text in self.provenance.items():
            expect(f"model file: provenance {name!r}", text, str)
        if self.signature is not None:
            self.signature.expect_of(self.graph)
        if self.free is not None:
            self.free.expect_of(self.graph)

    def graph_for(self, *shapes: Shape) -> Graph:
        """Return the graph for inputs of other shapes.

        Raises
        ------
        InputError
            If its operations cannot run on them.
        """
        return (self.free or FreeSizes(())).graph_for(self.graph, shapes)

    @cached_property
    def image_spec(self) -> InputSpec | None:
        """How an image becomes the input; all of it, without a margin, where keypoints are found in it."""
        return self.input_spec.whole if self.input_spec and self.skeleton else self.input_spec

    @cached_property
    def called(self) -> Signature:
        """How the network is called."""
        return self.signature or plain(len(self.graph.inputs), len(self.graph.outputs))

    def expect_one_input(self, where: object) -> None:
        """Raise InputError unless the network has one input, of real numbers."""
        names = [value.name for value in self.graph.inputs]
        if self.called.types != ("float32",):
            found = ", ".join(f"{name} ({kind})" for name, kind in zip(names, self.called.types, strict=True))
            raise InputError(
                where,
                expected="a network with one input, of real numbers",
                found=found,
                fix="call it with a Session, which takes any inputs",
            )

    @property
    def golden_input(self) -> NDArray[np.float32]:
        """The first of `golden_inputs`."""
        return self.golden_inputs[0]

    @property
    def golden_inputs(self) -> tuple[NDArray[np.float32], ...]:
        """The inputs that `golden_outputs` belong to, each (1, *shape of the input)."""
        return golden_inputs(self.graph, self.golden_integers)

    def tensor_bytes(self) -> dict[str, int]:
        """Return the bytes of the weights: {"binary": packed signs, "real": everything else}."""
        spent = total(self.graph)
        return {"binary": spent.binary_bytes, "real": spent.real_bytes}


def golden_inputs(
    graph: Graph, integers: Mapping[int, NDArray[np.float32]]
) -> tuple[NDArray[np.float32], ...]:
    """Return the golden inputs of a graph; those of integers are given."""
    return tuple(integers.get(i, golden_input(value.shape)) for i, value in enumerate(graph.inputs))


def golden_input(shape: Shape) -> NDArray[np.float32]:
    """Return numbers from -2 to 2 that look random and are the same everywhere, (1, *shape).

    The number at index i is a hash of i: multiplications modulo 2^64 with a shift between, the upper 24 bits.
    """
    odd = np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    mixed = odd * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(40)
    return (mixed.astype(np.float32) / np.float32(1 << 22) - np.float32(2)).reshape(1, *shape)


@checked
def save(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write `model` to `path`, whole or not at all.

    Raises
    ------
    InputError
        If `path` cannot be written, or there is not a golden output for each of the graph's.
    """
    if len(model.golden_outputs) != len(model.graph.outputs):
        raise InputError(
            "model file",
            expected=f"{len(model.graph.outputs)} golden outputs, as the graph has",
            found=str(len(model.golden_outputs)),
            fix="compute them, as bitfactor.export does",
        )
    _expect_of_files(model.graph)
    tensors = {
        f"{node.name}.{role}": flat_bits(array) if are_signs(role, array) else array
        for node in model.graph.nodes
        for role, array in node.tensors.items()
    }
    for i, output in enumerate(model.golden_outputs):
        tensors[f"golden/output/{i}"] = output
    for i, output in enumerate(model.integer_outputs):
        tensors[f"golden/integer/{i}"] = output
    for i, given in model.golden_integers.items():
        tensors[f"golden/input/{i}"] = given
    for name, arrays in (model.free.tensors if model.free else {}).items():
        tensors |= {f"free/{name}.{role}": array for role, array in arrays.items()}
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    document = _describe(model)
    document["sha256"] = _digest(document, tensors)
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, {"bitfactor": json.dumps(document, sort_keys=True)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def _expect_of_files(graph: Graph) -> None:
    for node in graph.nodes:
        if not OPERATIONS[node.op].in_files:
            where, expected = f"node {node.name!r}", "an operation that a file holds"
            raise InputError(where, expected=expected, found=repr(node.op), fix="export the model again")


@runtime_checkable
class OpenFile(Protocol):
    """A file that is open for reading bytes, or what reads like one."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes, all that are left by default."""


Source = str | os.PathLike[str] | bytes | OpenFile


@checked
def load(path: Source, max_bytes: int | None = None) -> ModelFile:
    """Read the model at `path`, which may also be the bytes of a model file, or an open file.

    No more than `max_bytes` are allocated for it: what the file states is checked first.

    Raises
    ------
    InputError
        If there is no such file, or it is no model file, is truncated or altered, of a newer version, or
        too large.

    Example
    -------
    >>> load(Path("net.safetensors").read_bytes(), max_bytes=1 << 20).labels
    ('cat', 'dog')
    """
    path = content_of(path, max_bytes)
    where = "a model file as bytes" if isinstance(path, bytes) else Path(path)
    try:
        metadata, tensors = _parts(path, max_bytes)
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _bad(where, _what_is(path, error)) from error
    if "bitfactor" not in metadata:
        raise _bad(where, "a safetensors file without a bitfactor graph (a checkpoint?)")
    try:
        document = json.loads(metadata["bitfactor"])
        stated = document.pop("sha256")
    except (KeyError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise _bad(where, f"metadata that cannot be read ({error!r})") from error
    if stated != _digest(document, tensors):
        raise _bad(where, "contents that do not match their checksum (damaged or altered)")
    try:
        return _restore(document, tensors, max_bytes)
    except InputError as error:
        found = str(error).removesuffix(f"; {error.fix}")
        raise InputError(
            where, expected="a model file of this version", found=found, fix=error.fix
        ) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _bad(where, f"an unreadable graph ({error!r})") from error


def content_of(source: Source, max_bytes: int | None) -> str | os.PathLike[str] | bytes:
    """Return a path or bytes as they are, and what an open file holds, so far as it may be read."""
    if not isinstance(source, OpenFile):
        return source
    content = source.read(-1 if max_bytes is None else max_bytes + 1)
    if not isinstance(content, bytes):
        raise InputError("file", expected="one open for reading bytes", found="text", fix='open it with "rb"')
    return content


def expect_within(found: int, max_bytes: int | None, what: str) -> None:
    """Raise InputError where something would take more than `max_bytes`."""
    if max_bytes is not None and found > max_bytes:
        raise InputError(
            "max_bytes",
            expected=f"at most {max_bytes} bytes",
            found=f"{what} of {found}",
            fix="allow more, if you trust the file",
        )


_MOST_METADATA = 1 << 24
_OF_TEXT = 32  # bytes that a character of JSON may become in memory: "[]," is a list


def _parts(
    path: str | os.PathLike[str] | bytes, max_bytes: int | None
) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Return the metadata and the tensors of a safetensors file, which are as long as the file at most."""
    if isinstance(path, bytes):
        text, size = int.from_bytes(path[:8], "little"), len(path)
    else:
        with open(path, "rb") as file:
            text, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
    if 8 + text <= size:
        expect_within(size + _OF_TEXT * text, max_bytes, "a file")
        if text > _MOST_METADATA:
            raise ValueError(f"{text} bytes that describe it, of {_MOST_METADATA} at most")
    if isinstance(path, bytes):
        tensors = load_bytes(path)
        return json.loads(path[8 : 8 + text]).get("__metadata__", {}), tensors
    with safe_open(path, framework="numpy") as opened:
        return opened.metadata() or {}, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


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


def _describe(model: ModelFile) -> dict[str, Any]:
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


def _restore(document: dict[str, Any], tensors: dict[str, NDArray[Any]], max_bytes: int | None) -> ModelFile:
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
    _expect_of_files(graph)
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


def _digest(document: dict[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    import hashlib  # here, for a quick import of the rest

    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")
    return digest.hexdigest()


def _bad(path: object, found: str) -> InputError:
    return InputError(
        path,
        expected="a bitfactor model file",
        found=found,
        fix="write one with `bitfactor export RUN -o FILE`",
    )


def _what_is(path: str | os.PathLike[str] | bytes, error: Exception) -> str:
    """Say what stands at `path`, or which bytes are given, instead of a model file."""
    if not isinstance(path, bytes):
        if not Path(path).exists():
            return "no such file"
        if Path(path).is_dir():
            return "a directory"
    try:
        start = path[:4096] if isinstance(path, bytes) else _first(Path(path))
    except OSError as unreadable:
        return f"a file that cannot be read ({unreadable.strerror})"
    if not start:
        return "an empty file"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 32:
        return f"a truncated or damaged file ({error})"
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            return kind
    if b"\0" not in start:
        return "a text file"
    return "data of another format"


def _first(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096)


_MAGIC = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a zip archive or torch checkpoint",
    b"\x80": "a Python pickle",
}
