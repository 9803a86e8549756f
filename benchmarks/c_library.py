"""Latency and memory of the C library, for frozen programs, on one thread.

Libraries, so that two builds may be compared, take turns in one process, on each instruction set but the
scalar one; the minimum counts. Memory is what a process of its own grows by at its peak when it loads the
first library and a program and runs it once, on the best instruction set.

    bitfactor freeze digits -o digits.bfp
    taskset -c 1 python benchmarks/c_library.py build/c/libbitfactor.so [OTHER.so] --programs digits.bfp
"""

import argparse
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path

from bitfactor.common.machine import cpu_name


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_int),
        ("dimensions", ctypes.c_size_t),
        ("shape", ctypes.c_size_t * 6),
        ("size", ctypes.c_size_t),
    )


class Network:
    """A program as a library runs it; of one input."""

    def __init__(self, library: Path, program: Path):
        self.library = ctypes.CDLL(str(library.resolve()))
        self.library.bf_open.restype = self.library.bf_instruction_sets.restype = ctypes.c_void_p
        self.path = library
        self.network = ctypes.c_void_p(self.library.bf_open(os.fsencode(program), None))
        if not self.network:
            sys.exit(f"{program}: expected a frozen program")
        outputs = self.library.bf_output_count(self.network)
        self.buffers = [self._floats("bf_input", 0), *(self._floats("bf_output", i) for i in range(outputs))]
        for i in range(len(self.buffers[0])):
            self.buffers[0][i] = i * 37 % 101 / 50 - 1
        self.inputs, self.outputs = map(_pointers, (self.buffers[:1], self.buffers[1:]))

    def _floats(self, which: str, i: int) -> ctypes.Array:
        tensor = Tensor()
        getattr(self.library, which)(self.network, ctypes.c_size_t(i), ctypes.byref(tensor), None)
        return (ctypes.c_float * tensor.size)()

    def instruction_sets(self) -> list[str]:
        names = (self.library.bf_instruction_sets(ctypes.c_size_t(i)) for i in count())
        texts = (ctypes.string_at(name).decode() for name in takewhile(bool, names))
        return [text for text in texts if text != "scalar"]

    def on(self, isa: str) -> Callable[[], float]:
        """Return what runs the network once on an instruction set, and gives the milliseconds."""
        if self.library.bf_set_instruction_set(self.network, isa.encode(), None):
            sys.exit(f"{self.path}: expected a library with the set {isa}, found none")

        def run() -> float:
            start = time.perf_counter()
            status = self.library.bf_run(self.network, ctypes.c_size_t(1), self.inputs, self.outputs, None)
            assert status == 0
            return 1e3 * (time.perf_counter() - start)

        return run


def _pointers(arrays: list[ctypes.Array]) -> ctypes.Array:
    return (ctypes.c_void_p * len(arrays))(*map(ctypes.addressof, arrays))


def latencies(libraries: list[Path], program: Path, runs: int) -> dict[str, list[float]]:
    networks = [Network(library, program) for library in libraries]
    found = {}
    for isa in networks[0].instruction_sets():
        engines = [network.on(isa) for network in networks]
        turns = [[engine() for engine in engines] for _ in range(runs)]
        found[isa] = [min(times) for times in zip(*turns, strict=True)]
    return found


def _memory(field: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status[field].split()[0])


def memory(library: Path, program: Path) -> int:
    """Return by how many bytes this process grows at its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from here on
    before = _memory("VmRSS")
    network = Network(library, program)
    network.library.bf_run(network.network, ctypes.c_size_t(1), network.inputs, network.outputs, None)
    return _memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("libraries", type=Path, nargs="+")
    parser.add_argument("--programs", type=Path, nargs="+", required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only-memory", action="store_true", help="of the first program, in bytes")
    options = parser.parse_args()
    if options.only_memory:
        print(memory(options.libraries[0], options.programs[0]))
        return
    print(cpu_name())
    for program in options.programs:
        alone = [sys.executable, __file__, options.libraries[0], "--programs", program, "--only-memory"]
        grown = int(subprocess.run(alone, check=True, stdout=subprocess.PIPE).stdout)
        print(f"\n{program.name}: memory {grown / 1e6:.1f} MB")
        for isa, times in latencies(options.libraries, program, options.runs).items():
            ratios = (f"{ms / times[0]:6.3f}" for ms in times[1:])
            print(f"{isa:12}", *(f"{ms:9.3f} ms" for ms in times), *ratios)


if __name__ == "__main__":
    main()
