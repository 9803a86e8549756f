"""Which cases of a test are in the default suite, and what a process takes.

The cases that are not in it are slow, and `make test-all` runs them too.
"""

import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import cycle, product

import pytest

from bitfactor.runtime.zoo import file_of, names

SMALL = [name for name in names() if file_of(name).stat().st_size < 1_000_000]
"""The zoo's networks that all targets run in seconds, the emulated ones too."""

# The peak that getrusage gives a child begins at its parent's: after torch it would hide all that is asked.
_PEAK = """
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
"""


def bytes_taken(code: str, *, after: str, given: bytes = b"") -> int:
    """Return by how much `code` raises the peak of a process that ran `after`, with `given` as stdin."""
    script = f"{_PEAK}{after}\nbefore = peak()\n{code}\nprint((peak() - before) * 1024)"
    ran = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, check=True)
    return int(ran.stdout)


def slow_beside(quick: Iterable[object], cases: Iterable[object]) -> list[object]:
    """Return the cases of a test, those that are not among the quick ones marked as slow."""
    quick = list(quick)
    return [case if case in quick else _slow(case) for case in cases]


def either(names: Iterable[str]) -> list[object]:
    """Return (name, switch): one value of a switch for each name in turn, the other one as a slow case."""
    names = list(names)
    return slow_beside(zip(names, cycle((False, True)), strict=False), product(names, (False, True)))


def _slow(case: object) -> object:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def wait_for(condition, seconds=600):
    """Wait until a condition holds, so many seconds at most."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
