"""Speed of real-valued layers by precision, for each instruction set of this machine, on one thread.

The 7x7 stem of a network on images, 1x1 shortcuts and a head, each with ReLU: in float32, in bfloat16
(`medium`, which is float32 where a CPU does not multiply bfloat16) and in 8-bit integers (`low`), whose time
includes that of rounding the input to levels. Precisions take turns, and the fastest run of each counts.

    taskset -c 1 python benchmarks/real_layers.py [--isa avx512 avx2] [--json]
"""

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

from bitfactor.format import Graph, Node, Value
from bitfactor.format.low_precision import low_precision
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.runner import NativeRunner

# Channels in and out, kernel, stride, side of the input.
LAYERS = {
    "stem of ResNet-18 at 224": (3, 64, 7, 2, 224),
    "its shortcut of stage 2": (64, 128, 1, 2, 56),
    "its shortcut of stage 4": (256, 512, 1, 2, 14),
    "stem of the hourglass at 256": (3, 64, 7, 2, 256),
    "its head": (128, 128, 1, 1, 64),
}
PRECISIONS = ("highest", "medium", "low")
TURNS, RUNS = 5, 15


@dataclass(frozen=True)
class Figure:
    """Milliseconds of a layer by precision, and its products per second in units of 1e9."""

    isa: str
    layer: str
    milliseconds: dict[str, float]
    gmacs: dict[str, float]

    def __str__(self) -> str:
        fastest = self.milliseconds["highest"]
        cells = (
            f"{name} {ms:6.3f} ms {self.gmacs[name]:4.0f} GMAC/s {fastest / ms:5.2f}x"
            for name, ms in self.milliseconds.items()
        )
        return f"{self.isa:10} {self.layer:28} {'   '.join(cells)}"


def layer_graph(channels: int, outputs: int, kernel: int, stride: int, side: int) -> Graph:
    rng = np.random.default_rng(0)
    window = {"stride": (stride,) * 2, "padding": (kernel // 2,) * 4, "dilation": (1, 1), "groups": 1}
    tensors = {
        "weight": rng.standard_normal((outputs, kernel, kernel, channels), np.float32),
        "bias": rng.standard_normal(outputs, np.float32),
        "range": np.array([-4, 4], np.float32),
    }
    nodes = (Node("y", "conv2d", ("x",), window, tensors), Node("z", "relu", ("y",)))
    return Graph(Value("x", (channels, side, side), "float32"), nodes, ("z",))


def measure(isa: str, name: str) -> Figure:
    graph = layer_graph(*LAYERS[name])
    x = np.random.default_rng(1).standard_normal((1, *graph.input.shape), np.float32)
    runners = {
        precision: NativeRunner(low_precision(graph), isa, 1)
        if precision == "low"
        else NativeRunner(graph, isa, 1, precision)
        for precision in PRECISIONS
    }
    best = dict.fromkeys(PRECISIONS, np.inf)
    for _ in range(TURNS):
        for precision, run in runners.items():
            layer = next(layer for layer in run.profile(x, runs=RUNS).layers if layer.operations)
            best[precision] = min(best[precision], layer.minimum)
    outputs, pixels = graph.values["y"].shape[0], np.prod(graph.values["y"].shape[1:])
    products = int(pixels) * outputs * graph.nodes[0].tensors["weight"][0].size
    return Figure(
        isa,
        name,
        {precision: 1e3 * seconds for precision, seconds in best.items()},
        {precision: products / seconds / 1e9 for precision, seconds in best.items()},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--isa", nargs="*", default=[isa for isa in instruction_sets() if isa != "scalar"])
    arguments = parser.parse_args()
    figures = []
    for isa in arguments.isa:
        for name in LAYERS:
            figures.append(measure(isa, name))
            if not arguments.json:
                print(figures[-1], flush=True)
    if arguments.json:
        print(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    main()
