"""Speed of a binary convolution, for each instruction set of this machine, on one thread.

The four 3x3 shapes of ResNet-18 at 224 pixels, each with two epilogues: `signs` is alpha, batch norm and sign
as one threshold, which writes bits alone; `residual` is alpha, PReLU, the addition of a shortcut, and
both the sum and its signs. The time of one layer is the difference between a chain of many layers and a chain
of one, divided by the layers between; the fastest of several runs counts.

    taskset -c 1 python benchmarks/kernels.py
"""

import time

import numpy as np

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.session import runner

SHAPES = [(64, 56), (128, 28), (256, 14), (512, 7)]
WINDOW = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
LAYERS, RUNS = 9, 25


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


def fastest(graph: Graph, isa: str) -> float:
    run = runner(graph, isa)
    x = np.random.default_rng(1).standard_normal((1, *graph.input.shape), np.float32)
    run(x)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(x)
        times.append(time.perf_counter() - start)
    return min(times)


def seconds_a_layer(isa: str, channels: int, size: int, residual: bool) -> float:
    many, one = (fastest(chain(channels, size, layers, residual), isa) for layers in (1 + LAYERS, 1))
    return (many - one) / LAYERS


def main() -> None:
    print(f"{'set':8} {'shape':>11} {'signs':>9} {'':>14} {'residual':>9}")
    for isa in instruction_sets():
        for channels, size in SHAPES:
            products = 9 * channels * channels * size * size
            times = [seconds_a_layer(isa, channels, size, residual) for residual in (False, True)]
            figures = (f"{1e3 * t:6.3f} ms {products / t / 1e9:7.1f} GMAC/s" for t in times)
            print(f"{isa:8} {channels:>4}x{size}x{size:<4}", *figures)


if __name__ == "__main__":
    main()
