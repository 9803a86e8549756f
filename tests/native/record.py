"""A pytest plugin that writes each program that the tests build and run to a file.

    python -m pytest -p tests.native.record --record cases tests/runtime -k scalar

`replay` runs the programs again where there is no Python: on another processor, under a sanitizer. What a
program gave here is what it must give there. The tests have compared that with the reference. What
several tests run is written once.

The file is one frozen program behind the other, each with the test's name as its label, and with x and the
outputs as golden values.
"""

import os
from functools import partial
from hashlib import sha1
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest

from bitfactor.common import _native
from bitfactor.format.program import Instruction
from bitfactor.runtime import program
from bitfactor.targets.frozen import frozen


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", required=True, help="the file to write")


@pytest.fixture(scope="session", autouse=True)
def recording(request):
    written = set[bytes]()
    with open(request.config.getoption("--record"), "wb") as file, pytest.MonkeyPatch.context() as patch:
        begun = partial(Recorded, file, written)
        patch.setattr(program, "_native", SimpleNamespace(Program=begun))
        yield


class Recorded:
    """A program of the core that writes each of its runs to `target`."""

    def __init__(
        self, target: BinaryIO, written: set[bytes], isa: str, threads: int, arena_bytes: int
    ) -> None:
        self._real = _native.Program(isa=isa, threads=threads, arena_bytes=arena_bytes)
        self._target, self._written, self._arena_bytes = target, written, arena_bytes
        self._instructions: list[Instruction] = []

    def __getattr__(self, method: str) -> Any:
        return getattr(self._real, method)

    def add(self, kind: str, arguments: dict[str, np.ndarray]) -> None:
        self._real.add(kind=kind, arguments=arguments)
        self._instructions.append(Instruction(kind, arguments))

    def run(self, x: np.ndarray, outs: list[np.ndarray]) -> bool:
        finite = bool(self._real.run(x=x, outs=outs))
        if finite and len(x):
            given = [*self._instructions, Instruction.of("golden_input", values=x)]
            what = sha1(frozen(given, self._arena_bytes)).digest()
            if what in self._written:
                return finite
            self._written.add(what)
            label = Instruction.of("labels", names=os.environ["PYTEST_CURRENT_TEST"] + "\0")
            golden = [Instruction.of("golden_output", values=out) for out in outs]
            self._target.write(frozen([*given, label, *golden], self._arena_bytes))
        return finite
