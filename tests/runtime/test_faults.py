"""The runtime for long, from many threads, on values and memory that are odd, and where a machine refuses."""

import math
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from tests.runtime.sets import every_set

from bitfactor.common import expect_one_interpreter, machine
from bitfactor.common.errors import InputError
from bitfactor.format.graph import run
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.zoo import file_of

DIGITS = file_of("digits")


def in_a_process(code, *arguments, before=()):
    """Return what a Python process of its own prints."""
    command = [*before, sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


CYCLES = """
import gc, os, sys
import numpy as np
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of

path, x = file_of("digits"), np.zeros((3, 1, 8, 8), np.float32)

def cycle():
    Session(path, threads=2)(x)

def held():
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    files, threads = (len(os.listdir(f"/proc/self/{of}")) for of in ("fd", "task"))
    return pages * os.sysconf("SC_PAGESIZE"), files, threads

for _ in range(100):
    cycle()
before = held()
for _ in range(int(sys.argv[1])):
    cycle()
print(*(now - then for now, then in zip(held(), before)))
"""


@pytest.mark.parametrize("cycles", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_sessions_that_come_and_go_leave_nothing(cycles):
    """A file is loaded, run and dropped: no memory, open file or thread stays."""
    grown, files, threads = map(int, in_a_process(CYCLES, cycles).split())
    print(f"{cycles:,} cycles: {grown / 2**10:.0f} KiB more")
    assert grown < 2**20
    assert (files, threads) == (0, 0)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shared", [True, False])
def test_eight_threads_get_what_one_gets(seconds, shared):
    draws, alone = np.random.default_rng(0), Session(DIGITS, threads=1)
    inputs = [draws.standard_normal((n, 1, 8, 8), np.float32) for n in (1, 2, 3, 5, 8, 13, 21, 34)]
    expected = [alone(x) for x in inputs]
    one = Session(DIGITS, threads=2)
    sessions = [one if shared else Session(DIGITS, threads=2) for _ in inputs]
    end = time.monotonic() + seconds

    def work(i):
        runs = 0
        while not runs or time.monotonic() < end:  # on a busy machine a thread may begin late
            np.testing.assert_array_equal(sessions[i](inputs[i]), expected[i])
            runs += 1
        return runs

    with ThreadPoolExecutor(len(inputs)) as pool:
        print(f"{sum(pool.map(work, range(len(inputs)))):,} runs")


IN_A_SUB_INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
try:
    failed = run(interpreters.create(), "import bitfactor.runtime")
except Exception as error:
    failed = error
print(failed)
"""


def test_a_sub_interpreter_is_refused():
    assert "expected the main interpreter, found a sub-interpreter" in in_a_process(IN_A_SUB_INTERPRETER)


def test_python_without_its_lock_is_refused(monkeypatch):
    expect_one_interpreter()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(
        InputError, match="one with its global lock, found one without; start it with PYTHON_"
    ):
        expect_one_interpreter()


@every_set
def test_denormals_and_the_largest_numbers_are_numbers(isa):
    """Denormals are not taken for zeros: a set of instructions that flushed them would give other bits."""
    session, draws = Session(DIGITS, isa=isa), np.random.default_rng(0)
    for largest in (1e-45, 1e-40, 1e-38, 1e30):
        x = (draws.uniform(-1, 1, (4, 1, 8, 8)) * largest).astype(np.float32)
        np.testing.assert_array_equal(session(x), run(session.model.graph, x)[0])


@every_set
def test_memory_that_is_read_only_or_overlaps(isa):
    session, draws = Session(DIGITS, isa=isa), np.random.default_rng(0)
    long = draws.standard_normal(8 * 8 + 9).astype(np.float32)
    windows = sliding_window_view(long, 64).reshape(10, 1, 8, 8)
    row = np.broadcast_to(long[:8], (6, 1, 8, 8))
    owned = np.ascontiguousarray(windows)
    owned.setflags(write=False)
    kept = long.copy()
    for x in (owned, windows, windows[::-1], row, sliding_window_view(long, 64)[::3].reshape(-1, 1, 8, 8)):
        np.testing.assert_array_equal(session(x), session(np.array(x)))
    np.testing.assert_array_equal(long, kept)


@every_set
def test_a_huge_batch(isa, request):
    """More samples than fit into 16 bits, but with `make test-amx`; and more than a thread takes at once."""
    largest = isa == instruction_sets()[0] and not request.config.pluginmanager.hasplugin(
        "tests.native.stand_in"
    )
    session = Session(DIGITS, isa=isa, threads=2)
    few = np.random.default_rng(0).standard_normal((7, 1, 8, 8), np.float32)
    many = np.resize(few, (70_000 if largest else 700, 1, 8, 8))
    found = session(many)
    np.testing.assert_array_equal(found[:7], session(few))
    np.testing.assert_array_equal(found, np.resize(found[:7], found.shape))


VERIFIED = """
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.zoo import file_of
session = Session(file_of("digits"))
session.verify()
print(session.isa, *instruction_sets())
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="`make test-faults` installs qemu-user")
@pytest.mark.parametrize(("cpu", "sets"), [("Nehalem", ["scalar"]), ("Haswell", ["avx2", "scalar"])])
def test_a_cpu_that_is_older_falls_back(cpu, sets):
    """On an emulated CPU without AVX2 and on one without AVX-512, and still bit for bit."""
    best, *all_sets = in_a_process(VERIFIED, before=("qemu-x86_64", "-cpu", cpu)).split()
    assert (best, all_sets) == (sets[0], sets)


# A filter of system calls, as a sandbox sets it: EINVAL, as of an older kernel, where one asks for tiles.
REFUSED = """
import ctypes, errno, struct
load, equal, back = 0x20, 0x15, 0x06
rules = [
    (load, 0, 0, 0), (equal, 0, 3, 158),  # arch_prctl
    (load, 0, 0, 16), (equal, 0, 1, 0x1023),  # ARCH_REQ_XCOMP_PERM
    (back, 0, 0, 0x50000 | errno.EINVAL), (back, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
assert libc.syscall(158, 0x1023, 18) == -1
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="AMX is asked for there"
)
def test_a_kernel_that_refuses_the_tiles_of_amx():
    best, *sets = in_a_process(REFUSED + VERIFIED).split()
    assert sets == [isa for isa in in_a_process(VERIFIED).split()[1:] if isa != "amx"]
    assert best == sets[0]


def control_groups(root, files, groups="0::/a/b\n"):
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


TOP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "groups", "granted"),
    [
        ({}, "0::/a/b\n", math.inf),
        ({f"{TOP}/a/b/cpu.max": "max 100000\n"}, "0::/a/b\n", math.inf),
        ({f"{TOP}/a/b/cpu.max": "150000 100000\n"}, "0::/a/b\n", 1.5),
        ({f"{TOP}/a/b/cpu.max": "max 100000\n", f"{TOP}/a/cpu.max": "200000 100000\n"}, "0::/a/b\n", 2),
        ({f"{TOP}/cpu.max": "50000 100000\n"}, "0::/\n", 0.5),
        ({f"{TOP}/cpu.max": "300000 100000\n"}, "0::/not/mounted\n", 3),
        ({f"{TOP}/cpu.max": "none of it\n"}, "0::/\n", math.inf),
        (
            {f"{TOP}/cpu/a/cpu.cfs_quota_us": "250000\n", f"{TOP}/cpu/a/cpu.cfs_period_us": "100000\n"},
            "4:memory:/m\n3:cpu,cpuacct:/a\n",
            2.5,
        ),
        (
            {f"{TOP}/cpu/a/cpu.cfs_quota_us": "-1\n", f"{TOP}/cpu/a/cpu.cfs_period_us": "100000\n"},
            "3:cpu,cpuacct:/a\n",
            math.inf,
        ),
    ],
)
def test_limits_of_control_groups_are_read(tmp_path, files, groups, granted):
    assert machine.granted_cpus(control_groups(tmp_path, files, groups)) == granted


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert machine.granted_cpus(tmp_path) == math.inf


@pytest.mark.parametrize(("granted", "threads"), [(0.5, 1), (2.9, 2), (math.inf, 4)])
def test_threads_by_default_are_within_the_limit(monkeypatch, granted, threads):
    monkeypatch.setattr(machine, "granted_cpus", lambda: granted)
    monkeypatch.setattr(machine, "_siblings", str)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    assert machine.physical_cores() == machine.usable_cpus() == threads
