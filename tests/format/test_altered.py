"""A model file that somebody altered, with a checksum that is right again, ends in InputError or runs."""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from bitfactor.common.errors import InputError
from bitfactor.format.file import _digest
from bitfactor.format.graph import MOST_ELEMENTS, Value
from bitfactor.runtime import Session, zoo

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


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield (*path, key)
        yield from parts(entry, (*path, key))


def alter(document: dict[str, Any], draw: random.Random) -> None:
    """Replace, remove or change by a little one part of what describes the network."""
    *path, last = draw.choice([p for p in parts(document) if p[0] not in ("report", "provenance", "bytes")])
    holder: Any = document
    for key in path:
        holder = holder[key]
    how = draw.random()
    if how < 0.2:
        holder.pop(last)
    elif how < 0.4 and type(holder[last]) is int:
        holder[last] += draw.choice((-1, 1, 100, 2**40))
    else:
        holder[last] = draw.choice(FOREIGN)


@pytest.mark.parametrize("seed", range(60))
def test_one_error_or_an_answer(tmp_path, seed) -> None:
    draw = random.Random(seed)
    with safe_open(zoo.file_of("digits"), framework="numpy") as file:
        document = json.loads(file.metadata()["bitfactor"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del document["sha256"]
    alter(document, draw)
    if draw.random() < 0.2:
        name = draw.choice(list(tensors))
        tensors[name] = draw.choice((tensors[name][:0], tensors[name].ravel(), tensors[name][..., None]))
    document["sha256"] = _digest(document, tensors)
    path = tmp_path / "altered.safetensors"
    save_file(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()}, path, {"bitfactor": json.dumps(document)}
    )
    try:
        session = Session(path, threads=1)
        session(*(np.zeros((1, *value.shape), np.float32) for value in session.model.graph.inputs))
    except InputError:
        pass


def test_a_value_larger_than_places_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="elements"):
        Value("x", (MOST_ELEMENTS, 2), "float32")
