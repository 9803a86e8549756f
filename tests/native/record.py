"""A pytest plugin that writes each program that the tests build and run to a file.

    python -m pytest -p tests.native.record --record cases tests/runtime -k scalar

`replay` runs the programs again where there is no Python: on another processor, under a sanitizer. What a
program gave here is what it must give there, and the tests have compared that with the reference.

The file is one frozen program behind the other, each with the test's name as its label, and with x and the
outputs as golden values.
"""

import os
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
    with open(request.config.getoption("--record"), "wb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_native", SimpleNamespace(Program=lambda **how: Recorded(file, **how)))
        yield


class Recorded:
    """A program of the core that writes each of its runs to `target`."""

    def __init__(self, target: BinaryIO, isa: str, threads: int, arena_bytes: int) -> None:
        self._real = _native.Program(isa=isa, threads=threads, arena_bytes=arena_bytes)
        self._target, self._arena_bytes = target, arena_bytes
        self._instructions: list[Instruction] = []

    def __getattr__(self, method: str) -> Any:
        return getattr(self._real, method)

    def add(self, kind: str, arguments: dict[str, np.ndarray]) -> None:
        self._real.add(kind=kind, arguments=arguments)
        self._instructions.append(Instruction(kind, arguments))

    def run(self, x: np.ndarray, outs: list[np.ndarray]) -> bool:
        finite = bool(self._real.run(x=x, outs=outs))
        if finite and len(x):
            described = [
                Instruction.of("labels", names=os.environ["PYTEST_CURRENT_TEST"] + "\0"),
                Instruction.of("golden_input", values=x),
                *(Instruction.of("golden_output", values=out) for out in outs),
            ]
            self._target.write(frozen([*self._instructions, *described], self._arena_bytes))
        return finite
