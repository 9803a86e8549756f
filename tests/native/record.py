"""A pytest plugin that writes each program that the tests build and run to a file.

    python -m pytest -p tests.native.record --record cases tests/runtime -k scalar

`replay` runs the programs again where there is no Python: on another processor, under a sanitizer. What a
program gave here is what it must give there, and the tests have compared that with the reference.

The file is one case behind the other, little-endian. A text is its length (int64) and its bytes; an array the
number of its dimensions, its shape, its size in bytes (int64 each) and its numbers. A case is

    name of the test, bytes of the arena
    number of calls; of each the name, the number of arguments, and of each argument the name and an array
    x, number of outputs, the outputs
"""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest

from bitfactor.runtime import _native, build

LEFT_OUT = ("profile", "allow_bfloat16")  # a second run, and leave to be less exact


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", required=True, help="the file to write")


@pytest.fixture(scope="session", autouse=True)
def recording(request):
    with open(request.config.getoption("--record"), "wb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_native", recording_core(file))
        yield


def recording_core(file: BinaryIO) -> SimpleNamespace:
    """Return the names of `_native` that `build` uses; their programs write each run to `file`."""

    class Recorded(Program):
        target = file

    made = {name: lambda name=name, **kwargs: Made(name, kwargs) for name in ("window", "pool", "Buffer")}
    return SimpleNamespace(Program=Recorded, **made)


class Made:
    """An object of the core, and what it was made of."""

    def __init__(self, maker: str, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.real = getattr(_native, maker)(**{name: real(value) for name, value in arguments.items()})


class Program:
    target: BinaryIO

    def __init__(self, isa: str, threads: int, arena_bytes: int) -> None:
        self._real = _native.Program(isa=isa, threads=threads, arena_bytes=arena_bytes)
        self._arena_bytes = arena_bytes
        self._calls: list[bytes] = []

    def __getattr__(self, method: str) -> Any:
        def call(*buffers: Made, **arguments: Any) -> Any:
            by_name = {name: real(value) for name, value in arguments.items()}
            result = getattr(self._real, method)(*map(real, buffers), **by_name)
            if result is None and method not in LEFT_OUT:  # what gives something was a question
                named = [*(("buffer", buffer) for buffer in buffers), *arguments.items()]
                parts = [text(name) + array(value) for name, value in named]
                self._calls.append(b"".join([text(method), integer(len(named)), *parts]))
            return result

        return call

    def run(self, x: np.ndarray, outs: list[np.ndarray]) -> bool:
        finite = self._real.run(x=x, outs=outs)
        test = os.environ["PYTEST_CURRENT_TEST"]
        parts = [text(test), integer(self._arena_bytes), integer(len(self._calls)), *self._calls]
        self.target.write(b"".join([*parts, array(x), integer(len(outs)), *map(array, outs)]))
        return bool(finite)


def real(value: Any) -> Any:
    if isinstance(value, list):
        return [real(item) for item in value]
    return value.real if isinstance(value, Made) else value


def integer(value: int) -> bytes:
    return np.int64(value).tobytes()


def text(value: str) -> bytes:
    return integer(len(value.encode())) + value.encode()


def array(value: Any) -> bytes:
    if not isinstance(value, np.ndarray):
        value = np.float32(value) if isinstance(value, float) else np.array([*integers(value)], np.int64)
    header = (value.ndim, *value.shape, value.nbytes)
    return b"".join([*map(integer, header), value.tobytes()])


def integers(value: Any) -> Iterator[int]:
    """Yield the integers of a tuple, or of what an object was made of, one level behind the other."""
    if isinstance(value, Made):
        value = tuple(value.arguments.values())
    if not isinstance(value, list | tuple):
        yield int(value)
        return
    for item in value:
        yield from integers(item)
