"""One file per network: a safetensors file whose metadata holds the graph.

Tensors stand under `<node>.<role>`; binary weights as 64-bit words (see `bitfactor.format.bits`), one layout
on every machine. Metadata is one JSON document under the key `bitfactor`. It has format version, graph with
shapes, input specification, labels, sign and padding rules, byte accounting and provenance. A SHA-256 is of
all that and of the tensors. The outputs for a golden input, which is made and not stored, are tensors too,
for `Session.verify`. The same model gives the same bytes.
"""

import json
import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save_file

from bitfactor.common.checks import checked, expect_within
from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing
from bitfactor.format.bits import are_signs, flat_bits
from bitfactor.format.document import describe, digest_of, expect_of_files, restore
from bitfactor.format.model import ModelFile


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
    expect_of_files(model.graph)
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
    document = describe(model)
    document["sha256"] = digest_of(document, tensors)
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, {"bitfactor": json.dumps(document, sort_keys=True)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


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
        found_digest = digest_of(document, tensors)
    except (KeyError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise _bad(where, f"metadata that cannot be read ({error!r})") from error
    if stated != found_digest:
        raise _bad(where, "contents that do not match their checksum (damaged or altered)")
    try:
        return restore(document, tensors, max_bytes)
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
        expect_within(size + _OF_TEXT * text, max_bytes, "content in memory")
        if text > _MOST_METADATA:
            raise ValueError(f"{text} bytes that describe it, of {_MOST_METADATA} at most")
    if isinstance(path, bytes):
        tensors = load_bytes(path)
        return json.loads(path[8 : 8 + text]).get("__metadata__", {}), tensors
    with safe_open(path, framework="numpy") as opened:
        return opened.metadata() or {}, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


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
