"""Whole binary networks beside what their products take at least, for each instruction set, on one thread.

The bound is the sum over all layers of products by the peak of the instructions that make them (peak.cpp):
of signs, of 8 bits (`low`), or of floats. All else (stages, pools, memory) has no part in it. Networks are
those of front.py, with drawn weights. They and the peaks take turns, and the fastest run of each counts.

    taskset -c 1 python benchmarks/whole.py [--isa avx512 avx2] [--precision low highest] [--json]
"""

import argparse
import json
import subprocess
import tempfile
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from front import SIDE, file_of, published
from kernels import seconds

from bitfactor.common.machine import cpu_name
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.program import LayerTime

KINDS = ("signs", "levels", "floats")
TURNS, RUNS = 5, 5


@dataclass(frozen=True)
class Figure:
    """Milliseconds of a network, and what its products take at the peak, of each kind."""

    network: str
    isa: str
    precision: str
    milliseconds: float
    bound: dict[str, float]

    @property
    def share(self) -> float:
        return sum(self.bound.values()) / self.milliseconds

    def __str__(self) -> str:
        parts = " + ".join(f"{ms:.2f} {kind}" for kind, ms in self.bound.items() if ms)
        return (
            f"{self.network:24} {self.isa:7} {self.precision:8} {self.milliseconds:7.2f} ms"
            f" {self.share:5.0%} of its bound: {parts}"
        )


def products(layer: LayerTime) -> Counter[str]:
    """Return how many products a layer makes, of each kind."""
    levels = any(op.startswith("quantised") for op in layer.operations) and "depthwise" not in layer.kernel
    return Counter({"signs": layer.binary_macs, "levels" if levels else "floats": layer.real_macs})


def measure(program: Path, network: str, isa: str, precision: str, folder: Path) -> Figure:
    with warnings.catch_warnings(action="ignore"):
        session = Session(file_of(network, "1 bit", folder), threads=1, isa=isa, precision=precision)
    x = np.random.default_rng(0).standard_normal((1, 3, SIDE, SIDE), np.float32)
    work = sum((products(layer) for layer in session.profile(x, runs=1).layers), Counter())
    best, peak = np.inf, dict.fromkeys(KINDS, 0.0)
    for _ in range(TURNS):
        best = min(best, *(seconds(lambda: session(x)) for _ in range(RUNS)))
        for kind in KINDS:
            found = subprocess.run([program, isa, kind], capture_output=True, text=True, check=True)
            peak[kind] = max(peak[kind], float(found.stdout))
    return Figure(
        network, isa, precision, 1e3 * best, {kind: 1e3 * work[kind] / peak[kind] for kind in KINDS}
    )


def main() -> None:
    known = [isa for isa in instruction_sets() if isa in ("amx", "avx512", "avx2")]
    networks = list(dict.fromkeys(network for network, weights in published() if weights == "1 bit"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="+", choices=known, default=known)
    parser.add_argument("--precision", nargs="+", choices=("low", "highest"), default=("low", "highest"))
    parser.add_argument("--networks", nargs="+", choices=networks, default=networks)
    parser.add_argument("--folder", type=Path, default=Path("build/front"), help="keeps the networks")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as made:
        program = Path(made) / "peak"
        subprocess.run(["c++", "-O3", "-o", program, Path(__file__).with_name("peak.cpp")], check=True)
        for isa in arguments.isa:
            for precision in arguments.precision:
                for network in arguments.networks:
                    figures.append(measure(program, network, isa, precision, arguments.folder))
                    if not arguments.json:
                        print(figures[-1], flush=True)
    about = {"machine": cpu_name(), "numpy": np.__version__}
    if arguments.json:
        print(json.dumps({**about, "figures": [asdict(figure) for figure in figures]}))
    else:
        print(about)


if __name__ == "__main__":
    main()
