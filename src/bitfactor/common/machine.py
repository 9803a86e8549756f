"""The machine that this runs on.

How many threads make a network faster.
"""

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def cpu_name() -> str:
    """Return the name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, for what it allocates next; glibc alone has this.

    Else it gives back large pieces, and gets pages that have to be cleared and mapped again: a tenth of the
    time of decoding an image, and of a step of training.
    """
    with suppress(AttributeError, TypeError):  # no mallopt; on Windows, no library of the process itself
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_MMAP_MAX, 0)


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
