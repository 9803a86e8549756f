"""Model files that somebody altered, with a checksum that is right again, and what may come of them."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from bitfactor.common.errors import InputError
from bitfactor.format.document import digest_of as _digest
from bitfactor.runtime import Session

MOST_BYTES = 1 << 26
FOREIGN = (
    None,
    0,
    -1,
    7,
    2**31,
    2**70,
    -0.5,
    "",
    "relu",
    [],
    {},
    [1, 2],
    [[1]],
    True,
    {"tuple": 0},
    [10**6] * 2,
)
_NOT_READ = ("report", "provenance", "bytes", "rules")
_TYPES = ("f4", "f8", "i1", "u1", "i4", "u8", "f2", "?")
_Tensors = dict[str, NDArray[Any]]


def taken_apart(content: bytes) -> tuple[dict[str, Any], _Tensors]:
    """Return what describes the network of a model file, without the checksum, and its tensors."""
    length = int.from_bytes(content[:8], "little")
    document = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bitfactor"])
    document.pop("sha256", None)
    return document, load(content)


def put_together(document: dict[str, Any], tensors: _Tensors) -> bytes:
    document = {**document, "sha256": _digest(document, tensors)}
    return save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, {"bitfactor": json.dumps(document)})


def made_right(content: bytes) -> bytes:
    """Return a model file with the checksum of what is in it; what is none stays as it is."""
    try:
        return put_together(*taken_apart(content))
    except Exception:  # of json, of safetensors, of numpy: it is the loader that must not fail
        return content


def altered(content: bytes, draw: random.Random) -> bytes:
    """Return the file with one part of its description changed, and maybe a tensor."""
    document, tensors = taken_apart(content)
    _alter(document, draw)
    if tensors and draw.random() < 0.3:
        _alter_tensor(tensors, draw)
    return put_together(document, tensors)


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield (*path, key)
        yield from _parts(entry, (*path, key))


def _alter(document: dict[str, Any], draw: random.Random) -> None:
    """Replace, remove, copy or change by a little one part of what describes the network."""
    places = [path for path in _parts(document) if path[0] not in _NOT_READ]
    *path, last = draw.choice(places)
    holder = _at(document, path)
    how = draw.random()
    if how < 0.15:
        holder.pop(last)
    elif how < 0.45 and type(holder[last]) is int:
        holder[last] += draw.choice((-1, 1, 100, 2**20, 2**40))
    elif how < 0.65:
        holder[last] = copy.deepcopy(_at(document, draw.choice(places)))
    elif how < 0.75 and isinstance(holder, list):
        holder.insert(last, holder[last])
    else:
        holder[last] = draw.choice(FOREIGN)


def _at(document: Any, path: Any) -> Any:
    for key in path:
        document = document[key]
    return document


def _alter_tensor(tensors: _Tensors, draw: random.Random) -> None:
    name = draw.choice(sorted(tensors))
    array = tensors[name]
    how = draw.randrange(5)
    if how == 0:
        tensors[name] = draw.choice((array[:0], array.ravel(), array[..., None], array[:1]))
    elif how == 1:
        tensors[name] = array.astype(draw.choice(_TYPES))
    elif how == 2:
        del tensors[name]
    elif array.size:
        changed = array.copy().reshape(-1)
        special = (float("nan"), float("inf"), -3e38, 1e-45) if array.dtype.kind == "f" else (0, 1, 127)
        with np.errstate(over="ignore"):  # in float16
            changed[draw.randrange(array.size)] = draw.choice(special)
        tensors[name] = changed.reshape(array.shape)


def expect_one_error_or_an_answer(content: bytes) -> bool:
    """Whether the file runs; anything but InputError, where it does not, is a mistake of bitfactor's."""
    try:
        session = Session(content, threads=1, max_bytes=MOST_BYTES)
        inputs = session.model.graph.inputs
        if sum(np.prod(value.shape, dtype=float) for value in inputs) < MOST_BYTES / 16:
            session.verify()
    except InputError:
        return False
    return True
