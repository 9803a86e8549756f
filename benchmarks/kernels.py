"""Speed of a binary convolution, for each instruction set of this machine, on one thread.

The 3x3 shapes of ResNet-18 at 224 pixels and of an hourglass of 128 channels, each with two epilogues:
`signs` is alpha, batch norm and sign as one threshold, which writes bits alone; `residual` is alpha, PReLU,
the addition of a shortcut, and both the sum and its signs. The time of one layer is the difference between a
chain of many layers and a chain of one, divided by the layers between. Chains take turns, and the fastest run
of each counts; the fraction is of the peak of the set's own instructions (peak.cpp), taken in the same turns.
With --against-openvino the same chains also run in OpenVINO's BinaryConvolution (which has no kernel for
tiles), and the last column says how many times as long it takes.

    taskset -c 1 python benchmarks/kernels.py [--isa avx512 avx2] [--against-openvino] [--json]

--against-openvino needs the packages of bitfactor[bench].
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.runner import runner

RESNET18 = [(64, 56), (128, 28), (256, 14), (512, 7)]
HOURGLASS = [(128, 64), (128, 32), (128, 16), (128, 8), (128, 4)]
WINDOW = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
LAYERS, RUNS = 9, 15
OPENVINO = "openvino"


def chain(channels: int, size: int, layers: int, residual: bool) -> Graph:
    rng = np.random.default_rng(0)
    nodes: list[Node] = []

    def add(op: str, *inputs: str, attributes: dict | None = None, **tensors: np.ndarray) -> str:
        nodes.append(Node(f"{op}{len(nodes)}", op, inputs, attributes or {}, tensors))
        return nodes[-1].name

    numbers = {"direction": rng.choice(np.array([-1, 1], np.int8), channels)}
    numbers["threshold"] = rng.standard_normal(channels, np.float32)
    weight = pack_signs(rng.choice(np.array([-1, 1], np.int8), (channels, 3, 3, channels)))
    stream = "x"
    bits = add("threshold", stream, **numbers)
    for _ in range(layers):
        sums = add("binary_conv2d", bits, attributes=WINDOW, weight=weight)
        if residual:
            alpha = add("scale", sums, alpha=np.full(channels, 0.01, np.float32))
            stream = add("add", add("prelu", alpha, slope=np.full(channels, 0.25, np.float32)), stream)
            bits = add("threshold", stream, **numbers)
        else:
            bits = add("threshold", sums, **numbers)
    return Graph(Value("x", (channels, size, size), "float32"), tuple(nodes), (stream if residual else bits,))


@dataclass(frozen=True)
class Figure:
    """Speed of a layer (products per second), and the peak; 0 where there is no loop for the set."""

    isa: str
    channels: int
    size: int
    epilogue: str
    milliseconds: float
    gmacs: float
    peak_gmacs: float
    openvino: float | None  # its time by ours

    def __str__(self) -> str:
        shape = f"{self.channels}x{self.size}x{self.size}"
        share = f"{self.gmacs / self.peak_gmacs:5.0%}" if self.peak_gmacs else "    -"
        beside = "" if self.openvino is None else f", OpenVINO takes {self.openvino:.2f} times as long"
        return (
            f"{self.isa:7} {shape:>10} {self.epilogue:8} {self.milliseconds:6.3f} ms"
            f" {self.gmacs:7.1f} GMAC/s {share} of {self.peak_gmacs:.0f}{beside}"
        )


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def chain_runner(engine: str, channels: int, size: int, layers: int, residual: bool) -> Callable[[], object]:
    graph = chain(channels, size, layers, residual)
    x = np.random.default_rng(1).standard_normal((1, *graph.input.shape), np.float32)
    if engine == OPENVINO:
        from bitfactor.engines.with_openvino import binary_engine

        return binary_engine(graph, x, threads=1)
    run = runner(graph, engine)
    return lambda: run(x)


def peak_of(program: Path, isa: str) -> float:
    result = subprocess.run([program, isa], capture_output=True, text=True, check=False)
    return float(result.stdout or 0)


def measure(program: Path, engines: Sequence[str], channels: int, size: int) -> list[Figure]:
    """Figures of engines[0], an instruction set, by those of engines[1], if there is one."""
    chains = {
        (engine, residual, layers): chain_runner(engine, channels, size, layers, residual)
        for engine in engines
        for residual in (False, True)
        for layers in (1, 1 + LAYERS)
    }
    best, peak = dict.fromkeys(chains, np.inf), 0.0
    for turn in range(RUNS):
        peak = max(peak, peak_of(program, engines[0])) if turn % 5 == 0 else peak
        for key, run in chains.items():
            run()
            best[key] = min(best[key], seconds(run))
    figures = []
    for residual in (False, True):
        layer, *other = ((best[e, residual, 1 + LAYERS] - best[e, residual, 1]) / LAYERS for e in engines)
        products = 9 * channels * channels * size * size
        figure = Figure(
            engines[0],
            channels,
            size,
            "residual" if residual else "signs",
            1e3 * layer,
            products / layer / 1e9,
            peak / 1e9,
            other[0] / layer if other else None,
        )
        figures.append(figure)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--isa", nargs="*", default=instruction_sets())
    parser.add_argument("--against-openvino", action="store_true")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        subprocess.run(["c++", "-O3", "-o", program, Path(__file__).with_name("peak.cpp")], check=True)
        for isa in arguments.isa:
            engines = [isa, OPENVINO] if arguments.against_openvino else [isa]
            for channels, size in RESNET18 + HOURGLASS:
                figures += measure(program, engines, channels, size)
                if not arguments.json:
                    print(*figures[-2:], sep="\n", flush=True)
    if arguments.json:
        print(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    main()
