"""Arrays as constants of C."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 118  # of a line


def real(value: float) -> str:
    """Write a float32 so that C reads the same.

    >>> real(1.0)
    '1.0f'
    """
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if set(text) & {".", "e"} else f"{text}.0f"


@dataclass
class Constants:
    """Definitions of constants, `lines`, and the `bytes` that they take; names of C that are used once."""

    lines: list[str] = field(default_factory=list)
    bytes: int = 0
    _names: set[str] = field(default_factory=set)

    def define(self, wanted: str, array: NDArray[Any]) -> str:
        """Define a constant named like `wanted`, and return its name."""
        name = self.unused(wanted)
        kind, write = _TYPES[array.dtype.name]
        values = ", ".join(write(value) for value in array.ravel().tolist())
        text = textwrap.fill(values, WIDTH, initial_indent="    ", subsequent_indent="    ")
        self.lines.append(f"static const {kind} {name}[{array.size}] = {{\n{text}\n}};")
        self.bytes += array.nbytes
        return name

    def unused(self, wanted: str) -> str:
        """Return a name of C like the one wanted that was not given yet."""
        name = base = re.sub(r"\W", "_", f"at_{wanted}" if wanted[0].isdigit() else wanted, flags=re.ASCII)
        while name in self._names:
            name = f"{base}_{len(self._names)}"
        self._names.add(name)
        return name


_TYPES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "float32": ("float", real),
    "int8": ("int8_t", str),
    "uint8": ("uint8_t", str),
    "int16": ("int16_t", str),
    "uint16": ("uint16_t", str),
    "int32": ("int32_t", str),
    "uint32": ("uint32_t", lambda word: f"0x{word:08x}"),
}
