"""A pytest plugin that writes each program that the tests build and run to a file.

    python -m pytest -p tests.native.record --record cases tests/runtime -k scalar

`replay` runs the programs again where there is no Python: on another processor, under a sanitizer. What a
program gave here is what it must give there, and the tests have compared that with the reference.

The file is one case behind the other, little-endian. A text is its length (int64) and its bytes; an array the
place of its type in `TYPES`, the number of its dimensions, its shape, its size in bytes (int64 each) and its
elements. A case is

    name of the test, bytes of the arena
    number of instructions; of each the kind, the number of arguments, and of these the name and an array
    x, number of outputs, the outputs
"""

import os
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest

from bitfactor.runtime import _native, program

TYPES = (np.int64, np.int32, np.uint32, np.float32, np.uint8)  # Argument::Type in native/instruction.h


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", required=True, help="the file to write")


@pytest.fixture(scope="session", autouse=True)
def recording(request):
    with open(request.config.getoption("--record"), "wb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_native", SimpleNamespace(Program=lambda **how: Recorded(file, **how)))
        yield


class Recorded:
    """A program of the core that writes each of its runs to `target`."""

    def __init__(self, target: BinaryIO, isa: str, threads: int, arena_bytes: int) -> None:
        self._real = _native.Program(isa=isa, threads=threads, arena_bytes=arena_bytes)
        self._target, self._arena_bytes = target, arena_bytes
        self._instructions: list[bytes] = []

    def __getattr__(self, method: str) -> Any:
        return getattr(self._real, method)

    def add(self, kind: str, arguments: dict[str, np.ndarray]) -> None:
        self._real.add(kind=kind, arguments=arguments)
        parts = [text(name) + array(value) for name, value in arguments.items()]
        self._instructions.append(b"".join([text(kind), integer(len(parts)), *parts]))

    def run(self, x: np.ndarray, outs: list[np.ndarray]) -> bool:
        finite = self._real.run(x=x, outs=outs)
        test = os.environ["PYTEST_CURRENT_TEST"]
        count = integer(len(self._instructions))
        parts = [text(test), integer(self._arena_bytes), count, *self._instructions]
        self._target.write(b"".join([*parts, array(x), integer(len(outs)), *map(array, outs)]))
        return bool(finite)


def integer(value: int) -> bytes:
    return np.int64(value).tobytes()


def text(value: str) -> bytes:
    return integer(len(value.encode())) + value.encode()


def array(value: np.ndarray) -> bytes:
    header = (TYPES.index(value.dtype.type), value.ndim, *value.shape, value.nbytes)
    return b"".join([*map(integer, header), value.tobytes()])
