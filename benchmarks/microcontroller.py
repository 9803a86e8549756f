"""What the zoo's networks take on a microcontroller, as C: flash, RAM, and instructions beside float's.

Each network is exported as C99 twice: as it is, and as its full-precision baseline in float32. Both are
compiled for a Cortex-M3, which computes float in software, and for a Cortex-M4 with its floating-point unit,
and run on the emulated board of `make test-cortex-m`, where an instruction counts as one whatever it takes
on a chip. A binary layer is the convolution with all that follows it in the same pass.

    python -m benchmarks.microcontroller [digits ...] [--json]
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bitfactor.engines import full_precision
from bitfactor.format import ModelFile, load
from bitfactor.format.file import golden_input
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import CReport, export_c
from bitfactor.targets.c99.board import CORES, Ran, run

_CALL = re.compile(r"^    (run_\w+)\(\);$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    network: str
    core: str
    flash: int
    flash_float: int
    ram: int
    ram_float: int
    instructions: int
    instructions_float: int
    binary_instructions: int
    binary_instructions_float: int

    @property
    def ratio(self) -> float:
        return self.instructions_float / self.instructions

    @property
    def binary_ratio(self) -> float:
        return self.binary_instructions_float / self.binary_instructions


def measured(model: ModelFile, core: str, folder: Path) -> tuple[CReport, Ran, list[str]]:
    """Return what was written, what ran, and the functions of the layers in the order of its laps."""
    report = export_c(model, folder / "net.c")
    source = Path(report.source)
    text = source.read_text()
    layers = _CALL.findall(text)
    source.write_text("void lap(void);\n" + _CALL.sub(r"    \1(); lap();", text))
    x = golden_input(model.graph.input.shape).reshape(1, -1)
    return report, run(source, report.prefix, x, core, laps=len(layers) + 1), layers


def row(network: str, core: str, folder: Path) -> Row:
    model = load(file_of(network))
    _, bits, layers = measured(model, core, folder)
    binary = {
        f"run_{re.sub('[^0-9a-zA-Z_]', '_', n.name)}" for n in model.graph.nodes if n.op == "binary_conv2d"
    }
    baseline = replace(model, graph=full_precision(model.graph))
    _, real, real_layers = measured(baseline, core, folder)
    return Row(
        network,
        core,
        bits.flash,
        real.flash,
        bits.ram,
        real.ram,
        int(bits.instructions.sum()),
        int(real.instructions.sum()),
        _of(binary, layers, bits),
        _of(binary, real_layers, real),
    )


def _of(binary: set[str], layers: Sequence[str], ran: Ran) -> int:
    return sum(int(n) for name, n in zip(layers, ran.instructions[0], strict=False) if name in binary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["digits", "cifar10-resnet18"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        rows = [row(network, core, Path(folder)) for network in options.networks for core in CORES]
    if options.json:
        print(json.dumps([asdict(one) for one in rows]))
        return
    print(
        "network           core       flash    (float)    RAM   (float)  instructions   float  binary layers"
    )
    for one in rows:
        print(
            f"{one.network:17} {one.core:9} {one.flash:8,} {one.flash_float:10,} {one.ram:7,}"
            f" {one.ram_float:8,} {one.instructions:13,} {one.ratio:6.1f}x {one.binary_ratio:13.1f}x"
        )


if __name__ == "__main__":
    main()
