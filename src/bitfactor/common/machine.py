"""The machine that this runs on, the compiled core, and the instruction set that it is to use."""

import ctypes
import math
import os
import platform
from contextlib import suppress
from pathlib import Path

from bitfactor.common import _native
from bitfactor.common.errors import InputError, near_matches

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_MADV_HUGEPAGE, _HUGE_PAGE = 14, 2 << 20  # of Linux' mman.h


def cpu_name() -> str:
    """Return the name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, for what it allocates next; glibc alone has this.

    Else it gives back large pieces, and gets pages that have to be cleared and mapped again. That is a tenth
    of the time of decoding an image, and of a step of training. Where Linux has huge pages, it asks for them.
    A step reads maps of hundreds of megabytes once each. With small pages a fifth of it is page walks.
    """
    with suppress(AttributeError, TypeError, OSError):  # no mallopt; Windows has no library of the process
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_MMAP_MAX, 0)
        # Where the kernel counts what nobody touches, or malloc fills it, nothing is reserved.
        counted = Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
        if not (counted or os.environ.get("MALLOC_PERTURB_")):
            _ask_for_huge_pages(libc)


def _ask_for_huge_pages(libc: ctypes.CDLL) -> None:
    """Reserve what the heap may grow to, advise the kernel, and give it back to the heap, untouched."""
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if room := libc.malloc(size):
        first = -(-room // _HUGE_PAGE) * _HUGE_PAGE
        libc.madvise(first, room + size - first, _MADV_HUGEPAGE)
        libc.free(room)


def physical_cores() -> int:
    """Return the number of physical cores on which this process may run, and for which it has time."""
    cpus = _affinity()
    return os.cpu_count() or 1 if cpus is None else _within_limits(len({_siblings(cpu) for cpu in cpus}))


def usable_cpus() -> int:
    """Return the number of logical CPUs on which this process may run, and for which it has time."""
    cpus = _affinity()
    return os.cpu_count() or 1 if cpus is None else _within_limits(len(cpus))


def _affinity() -> set[int] | None:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None  # Linux alone has it


def _within_limits(cpus: int) -> int:
    # Rounded down: threads that wait for each other must not be held up for the rest of a period.
    return max(1, int(min(cpus, granted_cpus())))


def granted_cpus(root: Path = Path("/")) -> float:
    """Return the CPUs whose time the control groups of this process grant it, as of a container's --cpus.

    That is infinity without a limit. `root` holds `proc` and `sys`.
    """
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return math.inf
    found = math.inf
    for _, controllers, group in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        place = top / group.lstrip("/")
        for folder in (place, *place.parents):  # a group has what those above it leave
            if folder.is_relative_to(top):
                found = min(found, _granted_by(folder))
    return found


def _granted_by(folder: Path) -> float:
    """Return the limit of one control group, of version 2 or 1."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)  # "max" is no number
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def _siblings(cpu: int) -> str:
    """Return the logical CPUs of the core of `cpu`, as a list in text."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


ISA_VARIABLE = "BITFACTOR_ISA"


REFERENCE = "reference"


def instruction_sets() -> list[str]:
    """Return the names of the instruction sets that this machine runs, best first."""
    return _native.instruction_sets()


def chosen_isa(isa: str | None = None) -> str:
    """Return the instruction set that is asked for: by name, by the environment, or else the best."""
    where = "isa" if isa is not None else ISA_VARIABLE
    isa = isa if isa is not None else os.environ.get(ISA_VARIABLE)
    available = [*instruction_sets(), REFERENCE]
    if not isa:
        return available[0]
    if isa not in available:
        expected = f"an instruction set of this machine ({', '.join(available)})"
        raise InputError(where, expected=expected, found=repr(isa), fix=near_matches(isa, available))
    return isa
