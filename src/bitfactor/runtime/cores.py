"""How many threads make a network faster."""

import os
from pathlib import Path

from bitfactor.format.cost import total
from bitfactor.format.graph import Graph

_TINY = 1 << 20  # operands (see default_threads): some tens of microseconds, less than to wake a thread


def default_threads(graph: Graph) -> int:
    """Return the physical cores that this process may use, or 1 for a tiny network.

    The measure is operands: multiply-accumulates of real numbers, or 32 at once of signs.
    """
    spent = total(graph)
    return 1 if spent.real_macs + spent.binary_macs // 32 < _TINY else physical_cores()


def physical_cores() -> int:
    """Return the number of physical cores on which this process may run."""
    try:
        cpus = os.sched_getaffinity(0)
    except AttributeError:  # no such call outside Linux
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in cpus})


def _siblings(cpu: int) -> str:
    """Return the logical CPUs of the core of `cpu`, as a list in text."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)
