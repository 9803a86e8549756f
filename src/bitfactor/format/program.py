"""What the compiled core takes: instructions, each a kind with arguments by name, all of them arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]


@dataclass(frozen=True)
class Buffer:
    """Where a value lies in the arena, in bytes, and its size: rows (pixels, channels) of float, or signs."""

    offset: int
    pixels: int
    channels: int
    signs: bool


@dataclass(frozen=True)
class SlidingWindow:
    """A window that slides over a map; `padding` is that at the top and on the left."""

    in_size: Pair
    out_size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair


@dataclass(frozen=True)
class Instruction:
    """One instruction; native/steps and native/program/program.cpp say what each `kind` takes.

    Example
    -------
    >>> Instruction.of("clip", lower=0.0, upper=6.0).arguments["upper"]
    array(6., dtype=float32)
    """

    kind: str
    arguments: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, kind: str, **arguments: object) -> Self:
        """Return the instruction; integers, also those of tuples and records, become int64, text UTF-8."""
        return cls(kind, {name: _array(value) for name, value in arguments.items()})

    def but(self, **arguments: object) -> "Instruction":
        """Return the instruction with other or more arguments."""
        return Instruction(self.kind, {**self.arguments, **Instruction.of(self.kind, **arguments).arguments})

    def __str__(self) -> str:
        """The kind and its arguments: integers and texts as they are, of other arrays type and shape."""
        return " ".join([self.kind, *(f"{name}={_shown(array)}" for name, array in self.arguments.items())])


_SHOWN = 12


def _shown(array: NDArray[Any]) -> str:
    if array.dtype == np.uint8 and array.ndim == 1:
        return repr(array.tobytes().decode(errors="replace"))
    if array.size <= _SHOWN and (array.dtype == np.int64 or array.size == 1):
        return ",".join(f"{value:g}" for value in array.reshape(-1).tolist())
    return f"{array.dtype}[{'x'.join(map(str, array.shape))}]"


def _array(value: object) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    if isinstance(value, float):
        return np.array(value, np.float32)
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.uint8)
    return np.array([*_integers(value)], np.int64)


def _integers(value: Any) -> Iterator[int]:
    """Yield the integers of a tuple, a list or a record, one level behind the other."""
    if is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in fields(value))
    if not isinstance(value, list | tuple):
        yield int(value)
        return
    for item in value:
        yield from _integers(item)
