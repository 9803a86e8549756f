"""What a network takes on a microcontroller: compiled and run on an emulated board, or estimated.

The board's sources lie here.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.format import Node
from bitfactor.targets.c99.binary import EIGHT
from bitfactor.targets.c99.instructions import real
from bitfactor.targets.c99.integers import IntegerLayers
from bitfactor.targets.c99.memory import Layer

BOARD = Path(__file__).parent


@dataclass(frozen=True)
class Core:
    """How a core's programs are compiled and emulated; `tick`: the instructions of a step of its clock."""

    emulator: tuple[str, ...]
    flags: tuple[str, ...]
    compiler: str = "arm-none-eabi-"
    begin: tuple[int, int] = (0, 0x2000_0000)  # of code and of data
    tick: int = 40

    @property
    def installed(self) -> bool:
        return all(shutil.which(program) for program in (f"{self.compiler}gcc", self.emulator[0]))


_ARM = ("qemu-system-arm", "-M")
_SINGLE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
CORES = {
    # whose instructions an M3 has, too
    "cortex-m0plus": Core((*_ARM, "mps2-an385"), ("-mcpu=cortex-m0plus", "-mthumb")),
    "cortex-m3": Core((*_ARM, "mps2-an385"), ("-mcpu=cortex-m3", "-mthumb")),
    "cortex-m4": Core((*_ARM, "mps2-an386"), _SINGLE),
    # Debian's compressed libgcc is the one with atomics, which nothing here uses
    "rv32imc": Core(
        ("qemu-system-riscv32", "-bios", "none", "-M", "virt"),
        ("-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany"),
        "riscv64-unknown-elf-",
        (0x8000_0000, 0x8040_0000),
        1,
    ),
}
_KINDS = {"uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "float32": "float"}


@dataclass(frozen=True)
class Ran:
    """The outputs (N, size) for N inputs, instructions of each (N, laps), and the bytes of the program."""

    outputs: NDArray[np.generic]
    instructions: NDArray[np.int64]
    flash: int
    ram: int


def run(
    source: Path,
    prefix: str,
    inputs: NDArray[np.generic],
    core: str = "cortex-m3",
    laps: int = 1,
    output: type[np.generic] = np.float32,
    optimise: str = "-O2",
) -> Ran:
    """Run the network `source` on inputs (N, size): as `run` takes them, or uint8 as `run_image` does.

    Each of the `laps` ends in the source with a call of `lap`, the last one behind it.
    """
    folder = source.parent
    entry = f"{prefix}_run_image" if inputs.dtype == np.uint8 else f"{prefix}_run"
    write = real if inputs.dtype == np.float32 else str
    rows = ",\n".join(f"{{{', '.join(map(write, row.ravel().tolist()))}}}" for row in inputs)
    (folder / "inputs.h").write_text(
        f'#include "{source.stem}.h"\n#define INPUTS {len(inputs)}\n'
        f"#define LAPS {laps}\n#define RUN {entry}\n"
        f"#define OUTPUT_SIZE {prefix.upper()}_OUTPUT_SIZE\n"
        f"#define OUTPUT {_KINDS[np.dtype(output).name]}\n"
        f"static const {_KINDS[inputs.dtype.name]} inputs[INPUTS][{inputs[0].size}] = {{\n{rows}}};\n"
    )
    of = CORES[core]
    program = folder / f"{source.stem}.elf"
    command = [f"{of.compiler}gcc", *of.flags, "-std=c99", "-Wall", "-Werror", optimise]
    command += ["-ffreestanding", "-nostdlib", "-T", str(BOARD / "link.ld"), f"-I{folder}", f"-I{BOARD}"]
    command += ["-ffunction-sections", "-Wl,--gc-sections"]  # what is not called takes no flash
    command += [
        f"-Wl,--defsym={name}={at}" for name, at in zip(("code_begin", "data_at"), of.begin, strict=True)
    ]
    command += [str(source), str(BOARD / "board.c"), str(BOARD / "main.c"), "-lgcc", "-o", str(program)]
    subprocess.run(command, check=True)
    emulator = [*of.emulator, "-icount", "shift=0", "-nographic", "-monitor", "none"]
    emulator += ["-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
    done = subprocess.run(emulator, check=True, capture_output=True, text=True, timeout=300)
    words = [[int(word, 16) for word in line.split()] for line in (done.stdout + done.stderr).splitlines()]
    table = np.array(words, np.uint32)
    assert len(table) == len(inputs)
    ticks = np.diff(table[:, :laps].astype(np.int64), axis=1, prepend=0)
    instructions = (ticks * of.tick).astype(np.int64)
    return Ran(table[:, laps:].copy().view(output), instructions, *_sizes(of, program, inputs.nbytes))


def _sizes(core: Core, program: Path, inputs: int) -> tuple[int, int]:
    """Return the bytes in flash, without the inputs, and in RAM, without the stack."""
    listed = subprocess.run(
        [f"{core.compiler}size", str(program)], check=True, capture_output=True, text=True
    )
    text, data, bss = map(int, listed.stdout.splitlines()[1].split()[:3])
    return text + data - inputs, data + bss


CoreName = Literal["cortex-m0plus", "cortex-m3", "cortex-m4", "rv32imc"]
_CALL = re.compile(r"^(    run_\w+\((?:input)?\);)$", re.MULTILINE)
_EMULATED = 3_500_000  # bytes
_PATIENCE = 2_000_000_000  # instructions
_CODE = 20_000  # bytes of functions at -O3, about
_OF_M0 = {"cortex-m0plus": 1.0, "cortex-m3": 0.75, "cortex-m4": 0.75, "rv32imc": 0.83}

# instructions on a Cortex-M0+ at -O3, as counted for the zoo's networks
_WORD = 60  # made to 16 entries
_THREE = 70  # look-ups of a row of a window 3 wide, in one part
_TAP = 25  # other look-ups of a tap
_DIRECT = 60  # a tap whose entries are made
_END = 180  # of 8 outputs
_PRODUCT = 5
_ELEMENT = 20  # of what only moves, adds or compares


@dataclass(frozen=True)
class Cost:
    """Instructions of a layer, which is named by its first operation, for one input."""

    layer: str
    instructions: int


def can_count(layers: IntegerLayers, core: CoreName) -> bool:
    """Whether the emulator is installed, and its memory and patience suffice."""
    costs, flash, ram = estimated(layers, core)
    fits = max(flash, ram) < _EMULATED and sum(cost.instructions for cost in costs) < _PATIENCE
    return fits and CORES[core].installed


def counted(layers: IntegerLayers, source: Path, prefix: str, core: CoreName) -> tuple[list[Cost], int, int]:
    """Return what layers take on the emulated board, and the bytes in flash and in RAM without the stack."""
    given = layers.graph.values[layers.graph.input]
    kind = np.uint8 if layers.graph.spec else np.int16
    x = np.random.default_rng(0).integers(0, 256, (1, prod(given.shape))).astype(kind)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / source.name
        text = _CALL.sub(r"\1 lap();", source.read_text())
        copy.write_text(f"void lap(void);\n{text}")
        copy.with_suffix(".h").write_text(source.with_suffix(".h").read_text())
        laps = len(layers.calls) + 1
        ran = run(copy, prefix, x, core, laps, np.int32, "-O3")
    costs = [Cost(of.names[0], int(n)) for of, n in zip(layers.layers, ran.instructions[0], strict=False)]
    return costs, ran.flash, ran.ram


def estimated(layers: IntegerLayers, core: CoreName) -> tuple[list[Cost], int, int]:
    """Return about what layers take, from how often kernels run, and about the bytes in flash and RAM."""
    factor = _OF_M0[core]
    costs = [Cost(of.names[0], int(factor * _instructions(layers, of))) for of in layers.layers]
    return costs, layers.constants.bytes + _CODE, layers.arena_bytes


def _instructions(layers: IntegerLayers, layer: Layer) -> float:
    value = layers.graph.values[layer.value]
    elements, blocks = prod(value.shape), -(-value.shape[0] // EIGHT)
    stages = _ELEMENT * elements * len(layer.stages)
    node = layer.first
    if node is None or node.op not in ("conv", "binary_conv"):
        return stages + _ELEMENT * elements
    if node.op == "conv":
        return stages + _PRODUCT * elements * prod(node.tensors["weight"].shape[1:]) + _ELEMENT * elements
    return _of_signs(layers, node, prod(value.shape[1:]), blocks) + (stages if layer.stages[1:] else 0)


def _of_signs(layers: IntegerLayers, node: Node, pixels: int, blocks: int) -> float:
    of = layers.counting(node)
    if of is None:
        return 10.0 * prod(node.tensors["weight"].shape) * pixels
    each = {"count_threes": _THREE / 3, "count_row": _TAP, "count_row_directly": _DIRECT}[of.kind]
    made = 0 if of.kind == "count_row_directly" else _WORD * 4 * of.taps * of.planes
    return blocks * (made + pixels * (each * of.taps * of.planes + _END))


def expect_fits(layers: IntegerLayers, flash: int, max_ram: int | None, max_flash: int | None) -> None:
    """Raise InputError if a network needs more memory than there is; it names the largest layer."""
    if max_ram is not None and layers.arena_bytes > max_ram:
        name, held = layers.fullest
        shape = layers.graph.values[name].shape
        fits = int(shape[0] * max_ram / layers.arena_bytes)
        smaller = f"at most {fits} channels there in place of {shape[0]}"
        raise InputError(
            f"--max-ram {max_ram}",
            expected="RAM for the arena",
            found=f"{layers.arena_bytes} bytes, which layer {name!r} needs for {held}",
            fix=f"allow {layers.arena_bytes}, or train it with {smaller}",
        )
    if max_flash is not None and flash > max_flash:
        name, size = max(layers.constant_bytes.items(), key=lambda item: item[1])
        over = flash - max_flash
        smaller = f"at most {size - over} bytes of weights there" if over < size else "fewer layers"
        raise InputError(
            f"--max-flash {max_flash}",
            expected="flash for code and weights",
            found=f"{flash} bytes; layer {name!r} takes {size} of them",
            fix=f"allow {flash}, or train it with {smaller}",
        )
