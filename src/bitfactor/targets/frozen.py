"""A program as one flat file, .bfp: what the C library, a web page and the tests of the core load.

A header, a table of instructions, a table of their arrays, and the arrays' data, in place. Whoever has the
bytes in memory reads them there. Weights that int8 or float16 hold without loss are stored so, and expanded
when they are loaded. native/program/frozen.h states the layout.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.machine import chosen_isa
from bitfactor.format import Graph, ModelFile
from bitfactor.format.integer import in_integers
from bitfactor.format.low_precision import lossless
from bitfactor.format.model import golden_inputs
from bitfactor.format.program import Instruction
from bitfactor.runtime.inputs import packed
from bitfactor.runtime.program import program_of
from bitfactor.runtime.runner import runner

VERSION = 2  # 1, which older libraries read, has no weights in fewer bits, and none of these instructions
_LATER = ("integers", "integer_conv", "integer_avg_pool", "weigh", "bend")
MAGIC = b"\x89BFP\r\n\x1a\n"
_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("byte_order", "<u4"),
        ("bytes", "<u8"),
        ("checksum", "<u4"),
        ("records", "<u4"),
        ("arena_bytes", "<u8"),
        ("threads", "<u4"),
        ("arrays", "<u4"),
        ("reserved", "<u8", 2),
    ]
)
_RECORD = np.dtype([("kind", "S32"), ("first", "<u4"), ("count", "<u4")])
_ARRAY = np.dtype(
    [("name", "S32"), ("type", "<u4"), ("dimensions", "<u4"), ("shape", "<i8", 6), ("offset", "<u8")]
)
_TYPES = (np.int64, np.int32, np.uint32, np.float32, np.uint8)  # native/program/instruction.h: Type
_HALVES, _LEVELS = 32, 33  # what is float32 when it is read
_BYTE_ORDER = 0x01020304
_CHECKED = _HEADER.fields["records"][1]  # type: ignore[index]  # where what the checksum is of begins
_LINE = 64


@checked
def frozen(instructions: Sequence[Instruction], arena_bytes: int, threads: int = 1) -> bytes:
    """Return the bytes of a file with these instructions."""
    arrays = [
        (name, array, *_stored(instruction.kind, name, array))
        for instruction in instructions
        for name, array in instruction.arguments.items()
    ]
    records = np.zeros(len(instructions), _RECORD)
    entries = np.zeros(len(arrays), _ARRAY)
    counts = [len(instruction.arguments) for instruction in instructions]
    records["kind"] = [instruction.kind.encode() for instruction in instructions]
    records["count"] = counts
    records["first"] = np.cumsum([0, *counts])[:-1]
    entries["shape"] = 1
    end = _HEADER.itemsize + records.nbytes + entries.nbytes
    data = bytearray()
    for entry, (name, array, type_, stored) in zip(entries, arrays, strict=True):
        data.extend(bytes(-(end + len(data)) % (_LINE if len(stored) >= _LINE else 8)))
        entry["name"], entry["type"], entry["dimensions"] = name.encode(), type_, array.ndim
        entry["shape"][: array.ndim] = array.shape
        entry["offset"] = end + len(data)
        data.extend(stored)
    data.extend(bytes(-len(data) % 8))
    header = np.zeros((), _HEADER)
    later = any(type_ >= _HALVES for *_, type_, _ in arrays) or any(i.kind in _LATER for i in instructions)
    header["magic"], header["version"], header["byte_order"] = MAGIC, VERSION if later else 1, _BYTE_ORDER
    header["records"], header["arrays"] = len(records), len(entries)
    header["arena_bytes"], header["threads"] = arena_bytes, threads
    header["bytes"] = end + len(data)
    body = records.tobytes() + entries.tobytes() + bytes(data)
    header["checksum"] = zlib.crc32(header.tobytes()[_CHECKED:] + body)
    return header.tobytes() + body


def _stored(kind: str, name: str, array: NDArray[Any]) -> tuple[int, bytes]:
    """Return the type of an array in the file, and its bytes there."""
    low = lossless(array) if (kind, name) == ("conv", "weight") else None
    if low is None:
        return _TYPES.index(array.dtype.type), _little(array)
    if low.steps is None:
        return _HALVES, _little(low.values)
    return _LEVELS, _little(low.steps) + _little(low.values)


def _little(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


@dataclass(frozen=True)
class FlatProgram:
    """The bytes of a network's program, and what it takes; `arena_bytes` is the memory of a sample."""

    content: bytes
    input_shape: tuple[int, ...]
    instructions: int
    arena_bytes: int


FlatPrecision = Literal["highest", "integer"]


@checked
def flat_program(
    model: ModelFile,
    size: tuple[int, int] | None = None,
    threads: int = 1,
    precision: FlatPrecision = "highest",
) -> FlatProgram:
    """Return the program of a model file, at another height and width of the input if they are given."""
    if precision == "integer":
        made = in_integers(model)
        model = replace(made, golden_outputs=runner(made.graph, chosen_isa())(*made.golden_inputs))
    graph = _graph(model, size)
    program = program_of(packed(graph))
    instructions = [i for layer in program.layers for i in layer.instructions]
    content = frozen([*instructions, *_description(model, graph)], program.arena_bytes, threads)
    return FlatProgram(content, packed(graph).input.shape, len(instructions), program.arena_bytes)


def _graph(model: ModelFile, size: tuple[int, int] | None) -> Graph:
    own = model.graph.input.shape
    if size is None:
        return model.graph
    if len(own) != 3 or min(size) < 1:
        found = f"{size} for an input of {own}"
        raise InputError("size", expected="height and width of a map", found=found, fix="leave it out")
    return model.graph_for((own[0], *size), *(value.shape for value in model.graph.others))


def _description(model: ModelFile, graph: Graph) -> Iterator[Instruction]:
    """Yield what is known beside the program."""
    spec, skeleton = model.image_spec, model.skeleton
    if spec is not None and spec.of_images:
        # At another size, it is the same part of an image.
        size = graph.input.shape[1:]
        resize = [-(-whole * n // part) for whole, part, n in zip(spec.resize, spec.size, size, strict=True)]
        yield Instruction.of(
            "image",
            size=size,
            resize=resize,
            keep_aspect=spec.keep_aspect,
            mean=np.array(spec.mean, np.float32),
            std=np.array(spec.std, np.float32),
        )
    labels = model.labels or (skeleton.keypoints if skeleton else ())
    if labels:
        yield Instruction.of("labels", names="".join(f"{label}\0" for label in labels))
    if skeleton is not None:
        yield Instruction.of("skeleton", edges=_pairs(skeleton.edges), flip_pairs=_pairs(skeleton.flip_pairs))
    xs = golden_inputs(graph, model.golden_integers)
    if graph.others or model.golden_integers:  # one of real numbers is made, see golden_input
        yield Instruction.of("golden_input", values=np.concatenate([x.reshape(1, -1) for x in xs], 1))
    same = graph.input.shape == model.graph.input.shape
    for output in model.golden_outputs if same else runner(graph, chosen_isa())(*xs):
        yield Instruction.of("golden_output", values=output.reshape(1, -1).astype(np.float32))


def _pairs(pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)
