"""What networks take on microcontrollers, as C: instructions, flash and RAM, and the chart of them.

Each small network of the zoo is exported in integers, with its real numbers in float, and as its
full-precision baseline. They are compiled by gcc at -O3 and run on the emulated boards of
`make test-cortex-m`. An instruction counts as one there, whatever it takes on a chip: these are neither
times nor cycles. A baseline that needs more than a Raspberry Pi Pico's 2 MB of flash is left out.

    python -m benchmarks.microcontroller [--json] [--chart docs/images/microcontroller.svg]
    python -m benchmarks.microcontroller --activations    # a ResNet-20 with none, PReLU and RPReLU
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bitfactor.engines import full_precision
from bitfactor.format import Graph, InputSpec, ModelFile, Node, load
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c
from bitfactor.targets.c99.board import CORES, memory_of, run

ZOO = (
    "digits",
    "cifar10-resnet18",
    "cifar10-resnet20",
    "cifar10-resnet16-wide",
    "cifar10-resnet20-wide",
    "cifar10-resnet16-widest",
)
FLASH = 2 << 20
TITLES = ("Cortex-M0+", "Cortex-M3", "Cortex-M4", "RV32IMC")


@dataclass(frozen=True)
class Row:
    """`accuracy`: top-1 on the test set in percent, the lowest and the highest, where it is known."""

    network: str
    precision: str
    core: str
    instructions: int
    flash: int
    ram: int
    accuracy: tuple[float, ...] = ()


# Top-1 accuracy on the 10,000 test images of CIFAR-10, as `bitfactor evaluate` gives it.
ACCURACY = {
    ("cifar10-resnet18", "integer"): (80.65,),
    ("cifar10-resnet18", "float"): (80.74,),
    ("cifar10-resnet20", "integer"): (83.99,),
    ("cifar10-resnet20", "float"): (84.25,),
    ("cifar10-resnet16-wide", "integer"): (86.07,),
    ("cifar10-resnet16-wide", "float"): (86.04,),
    ("cifar10-resnet20-wide", "integer"): (86.92,),
    ("cifar10-resnet20-wide", "float"): (87.07,),
    ("cifar10-resnet16-widest", "integer"): (88.62,),
    ("cifar10-resnet16-widest", "float"): (88.29,),
}

# Measured by others. The int8 network is ResNet-8 of MLPerf Tiny, 12.5 M products, in CMSIS-NN of July 2026,
# built by gcc 12 at -O3 and counted on the same boards; its accuracy is that of the results of MLPerf Tiny
# v1.1 (85.0 % with X-CUBE-AI, 86.5 % with microTVM and CMSIS-NN). CMSIS-NN is not tuned for the Cortex-M0+:
# an ideal loop there takes four instructions a product.
INT8, IDEAL = "int8 ResNet-8, CMSIS-NN", "int8 ResNet-8, ideal loop"
QUOTED = (
    Row(INT8, "int8", "cortex-m0plus", 97_500_000, 96_000, 0, (85.0, 86.5)),
    Row(INT8, "int8", "cortex-m3", 41_700_000, 96_000, 0, (85.0, 86.5)),
    Row(INT8, "int8", "cortex-m4", 29_900_000, 96_000, 0, (85.0, 86.5)),
    Row(IDEAL, "int8", "cortex-m0plus", 50_000_000, 0, 0, (85.0, 86.5)),
)


def rows() -> Iterator[Row]:
    for name in ZOO:
        model = load(file_of(name))
        baseline = replace(model, graph=drawn(full_precision(model.graph)))
        yield from of_network(name, "integer", model)
        yield from of_network(name, "float", model)
        yield from of_network(name, "full precision", baseline)


def of_network(name: str, precision: str, model: ModelFile) -> Iterator[Row]:
    """Yield what a network takes on each core, for one image."""
    integers = precision == "integer"
    with TemporaryDirectory() as folder:
        report = export_c(model, Path(folder) / "net.c", precision="integer" if integers else "highest")
        if report.constant_bytes > FLASH:
            return
        spec = model.input_spec
        assert spec
        pixels = np.random.default_rng(0).integers(0, 256, (1, *spec.size, len(spec.mean)), np.uint8)
        output = np.int32 if integers else np.float32
        for core in CORES:
            ran = run(Path(report.source), report.prefix, pixels, core, output=output, optimise="-O3")
            memory = memory_of(Path(report.source), f"{report.prefix}_run_image", core, "-O3")
            counted = int(ran.instructions.sum()), *memory
            yield Row(name, precision, core, *counted, ACCURACY.get((name, precision), ()))


def drawn(graph: Graph) -> Graph:
    """Return a baseline with weights of any size; those of one size would be stored in 8 bits."""
    draw = np.random.default_rng(0)

    def changed(node: Node) -> Node:
        if "weight" not in node.tensors:
            return node
        weight = node.tensors["weight"]
        weight = (weight * draw.uniform(0.5, 1.5, weight.shape)).astype(np.float32)
        return replace(node, tensors={**node.tensors, "weight": weight})

    return replace(graph, nodes=tuple(map(changed, graph.nodes)))


def activations() -> Iterator[Row]:
    """Yield what a ResNet-20 with 1x1 shortcuts and random weights takes, by what stands behind each sum."""
    import torch
    from torch import nn

    import bitfactor
    from bitfactor.models.reactnet import BiRealBlock, ReActBlock

    def with_prelu(inputs: int, channels: int, stride: int) -> nn.Module:
        return nn.Sequential(BiRealBlock(inputs, channels, stride), nn.PReLU(channels))

    spec = InputSpec((32, 32), (32, 32), (0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
    for name, block in {"nothing": BiRealBlock, "PReLU": with_prelu, "RPReLU": ReActBlock}.items():
        torch.manual_seed(0)
        shapes = [(inputs, 16 << i, 2 if inputs < 16 << i else 1) for i in range(3) for inputs in _inputs(i)]
        stem, head = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.Linear(64, 10)
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        net = nn.Sequential(stem, nn.BatchNorm2d(16), *(block(*shape) for shape in shapes), pool, head)
        for module in net.modules():
            if isinstance(module, bitfactor.nn.Shift):
                nn.init.normal_(module.bias, std=0.1)
        bitfactor.binarize_(net, latent="none", scale="analytic", keep_real=["*downsample*"])
        with TemporaryDirectory() as folder:
            path = Path(folder) / "net.safetensors"
            bitfactor.export(net.eval(), path, torch.randn(2, 3, 32, 32), input_spec=spec)
            yield from of_network(f"ResNet-20, {name}", "integer", load(path))


def _inputs(stage: int) -> list[int]:
    """Return the channels that each of a stage's six binary layers reads."""
    return [16 << max(stage - 1, 0), *[16 << stage] * 5]


BLUE, ORANGE, GREY = "#2e7dc4", "#c4571f", "#59636e"
LOOKS = {  # mark, colour, fill
    ("cifar10-resnet18", "integer"): ("o", BLUE, BLUE),
    ("cifar10-resnet18", "float"): ("s", BLUE, "white"),
    ("cifar10-resnet20", "integer"): ("^", BLUE, BLUE),
    ("cifar10-resnet20", "float"): ("v", BLUE, "white"),
    ("cifar10-resnet16-wide", "integer"): ("X", BLUE, BLUE),
    ("cifar10-resnet20-wide", "integer"): ("P", BLUE, BLUE),
    ("cifar10-resnet16-widest", "integer"): ("*", BLUE, BLUE),
    (INT8, "int8"): ("D", ORANGE, ORANGE),
    (IDEAL, "int8"): ("D", ORANGE, "white"),
}
LEGEND = {
    "cifar10-resnet18": "the zoo's binary ResNet-18",
    "cifar10-resnet20": "the zoo's binary ResNet-20",
    "cifar10-resnet16-wide": "the zoo's ResNet-16 of twice the width",
    "cifar10-resnet20-wide": "the zoo's ResNet-20 of twice the width",
    "cifar10-resnet16-widest": "the zoo's ResNet-16 of three times the width",
    INT8: "int8 ResNet-8 of MLPerf Tiny in CMSIS-NN (quoted; accuracy as published)",
    IDEAL: "the same in an ideal loop of four instructions a product",
}
PLACES = {  # where its number stands: side, offset in points
    "cifar10-resnet16-wide": ("right", (-6, -3)),
    "cifar10-resnet20-wide": ("right", (-6, -1)),
    "cifar10-resnet16-widest": ("center", (0, 7)),
}


def draw(found: Sequence[Row], path: Path) -> None:
    """Draw accuracy on CIFAR-10 against instructions, one panel for each core."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "bitfactor", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(CORES), figsize=(11, 4.4), sharey=True, sharex=True)
    for panel, core, title in zip(panels, CORES, TITLES, strict=True):
        panel.set_title(title)
        panel.set_xscale("log")
        panel.set(xlim=(6, 350), ylim=(79, 91))
        panel.set_xticks([10, 30, 100], ["10", "30", "100"])
        panel.minorticks_off()
        panel.grid(color="#d8dee4", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        for row in [*found, *QUOTED]:
            if row.core == core:
                _put(panel, row)
    panels[-1].text(7, 89.5, "no int8 figure\nfor this core", color=GREY, va="center")
    panels[0].set_ylabel("top-1 accuracy on CIFAR-10, %")
    panels[1].set_xlabel("millions of instructions for one image, counted in an emulator", x=1.1)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0.25, 1, 1))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _put(panel, row: Row) -> None:  # type: ignore[no-untyped-def]
    millions, look = row.instructions / 1e6, LOOKS.get((row.network, row.precision))
    if look is None:
        return
    mark, colour, fill = look
    label = f"{LEGEND[row.network]}{', in integers' if row.precision == 'integer' else ''}"
    label += ", real numbers in float" if row.precision == "float" else ""
    middle = sum(row.accuracy) / len(row.accuracy)
    panel.plot(millions, middle, mark, color=colour, markerfacecolor=fill, label=label, zorder=3)
    if len(row.accuracy) > 1:
        panel.vlines(millions, *row.accuracy, color=colour)
    side, apart = PLACES.get(row.network, ("center", (0, -14)))
    at = millions, row.accuracy[0]
    panel.annotate(f"{millions:.1f}", at, apart, textcoords="offset points", ha=side, color=colour)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--activations", action="store_true")
    parser.add_argument("--chart", type=Path, help="where to draw")
    options = parser.parse_args()
    found = list(activations() if options.activations else rows())
    if options.chart:
        draw(found, options.chart)
    if options.json:
        print(json.dumps([asdict(row) for row in (*found, *QUOTED)]))
        return
    print(f"{'network':27} {'precision':15} {'core':14} {'instructions':>13} {'flash':>10} {'RAM':>8}")
    for row in found if options.activations else (*found, *QUOTED):
        memory = [f"{bytes_:,}" if bytes_ else "" for bytes_ in (row.flash, row.ram)]
        print(
            f"{row.network:27} {row.precision:15} {row.core:14} {row.instructions:13,}"
            f" {memory[0]:>10} {memory[1]:>8}"
        )


if __name__ == "__main__":
    main()
