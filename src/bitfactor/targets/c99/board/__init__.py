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


class BoardError(RuntimeError):
    """A compiler or an emulator failed."""


@dataclass(frozen=True)
class Ran:
    """The outputs (N, size) for N inputs, and the instructions of each (N, laps)."""

    outputs: NDArray[np.generic]
    instructions: NDArray[np.int64]


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

    Each of the `laps` ends in the source with a call of `lap`, the last one behind it. Raises BoardError if
    the compiler or the emulator fails.
    """
    entry = f"{prefix}_run_image" if inputs.dtype == np.uint8 else f"{prefix}_run"
    write = real if inputs.dtype == np.float32 else str
    rows = ",\n".join(f"{{{', '.join(map(write, row.ravel().tolist()))}}}" for row in inputs)
    (source.parent / "_inputs.h").write_text(
        f'#include "{source.stem}.h"\n#define INPUTS {len(inputs)}\n'
        f"#define LAPS {laps}\n#define RUN {entry}\n"
        f"#define OUTPUT_SIZE {prefix.upper()}_OUTPUT_SIZE\n"
        f"#define OUTPUT {_KINDS[np.dtype(output).name]}\n"
        f"static const {_KINDS[inputs.dtype.name]} inputs[INPUTS][{inputs[0].size}] = {{\n{rows}}};\n"
    )
    of = CORES[core]
    program = _linked(of, source, "reset", optimise, "board.c", "main.c")
    emulator = [*of.emulator, "-icount", "shift=0", "-nographic", "-monitor", "none"]
    emulator += ["-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
    printed = _printed(emulator, seconds=300)
    lines = list(filter(_WORDS.fullmatch, printed.splitlines()))
    if len(lines) != len(inputs):
        raise BoardError(f"{emulator[0]} printed {printed[:80]!r}, and no outputs")
    table = np.array([[int(word, 16) for word in line.split()] for line in lines], np.uint32)
    ticks = np.diff(table[:, :laps].astype(np.int64), axis=1, prepend=0)
    return Ran(table[:, laps:].copy().view(output), (ticks * of.tick).astype(np.int64))


def memory_of(source: Path, entry: str, core: str, optimise: str = "-O2") -> tuple[int, int]:
    """Return the bytes in flash and in RAM of what a network's function `entry` needs, without the stack."""
    of = CORES[core]
    listed = _printed([f"{of.compiler}size", str(_linked(of, source, entry, optimise))])
    text, data, bss = map(int, listed.splitlines()[1].split()[:3])
    return text + data, data + bss


def _linked(core: Core, source: Path, entry: str, optimise: str, *others: str) -> Path:
    """Return a program of a network's source and others of the board."""
    program = source.with_suffix(".elf")
    command = [f"{core.compiler}gcc", *core.flags, "-std=c99", "-Wall", "-Werror", optimise]
    command += ["-ffreestanding", "-nostdlib", "-T", str(BOARD / "link.ld"), "-iquote", str(source.parent)]
    command += ["-ffunction-sections", "-Wl,--gc-sections"]  # what is not called takes no flash
    command += [
        f"-Wl,--defsym={name}={at}" for name, at in zip(("code_begin", "data_at"), core.begin, strict=True)
    ]
    command += [f"-Wl,--entry={entry}", str(source), *(str(BOARD / name) for name in ("memory.c", *others))]
    _printed([*command, "-lgcc", "-o", str(program)])
    return program


def _printed(command: list[str], seconds: float | None = None) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.splitlines() or [f"exit code {error.returncode}"]
        said = next((line for line in lines if "error" in line), lines[-1])
        raise BoardError(f"{command[0]} failed: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BoardError(f"{command[0]} failed: {type(error).__name__}") from error
    return done.stdout + done.stderr


CoreName = Literal["cortex-m0plus", "cortex-m3", "cortex-m4", "rv32imc"]
_WORDS = re.compile(r"([0-9a-f]{8} )+")
_CALL = re.compile(r"^(    run_\w+\((?:input)?\);)$", re.MULTILINE)
_EMULATED = 3_500_000  # bytes
_PATIENCE = 2_000_000_000  # instructions
_OF_M0 = {"cortex-m0plus": 1.0, "cortex-m3": 0.71, "cortex-m4": 0.71, "rv32imc": 0.87}

# bytes of code at -O3, rather too many: gcc copies functions for layers of other shapes
_CODE = 8_000
_CODE_OF_SHAPE = 1_800

# instructions on a Cortex-M0+ at -O3, as counted for the zoo's networks
_WORD = 80  # made to 16 entries
_THREE = 80  # look-ups of a row of a window 3 wide, in one part
_END = 165  # of 8 outputs
_PAIRED = 2.1  # a product with a pixel
_PRODUCT = 5.8
_SUM = 50
_STAGE = 20  # an element that is weighed or compared
_MOVE = 10  # an element that is read, or made of such

# about, since the zoo has no such layers
_TAP = 25  # other look-ups of a tap
_DIRECT = 60  # a tap whose entries are made


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
    """Return what layers take on the emulated board, and the bytes in flash and in RAM without the stack.

    Raises BoardError if the compiler or the emulator fails.
    """
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
    entry = f"{prefix}_run_image" if layers.graph.spec else f"{prefix}_run"
    costs = [Cost(of.names[0], int(n)) for of, n in zip(layers.layers, ran.instructions[0], strict=False)]
    return costs, *memory_of(source, entry, core, "-O3")


def estimated(layers: IntegerLayers, core: CoreName) -> tuple[list[Cost], int, int]:
    """Return about what layers take, from how often kernels run, and the bytes in flash and RAM.

    For the zoo's networks instructions are at most 10 % off in all, 40 % for a layer that takes a hundredth
    of them. Flash is up to 25 % too much, never too little.
    """
    factor = _OF_M0[core]
    costs = [Cost(of.names[0], int(factor * _instructions(layers, of))) for of in layers.layers]
    code = _CODE + _CODE_OF_SHAPE * len({_shape(layers, of) for of in layers.layers})
    return costs, layers.constants.bytes + code, layers.arena_bytes


def _shape(layers: IntegerLayers, layer: Layer) -> tuple[object, ...]:
    """Return in what layers differ whose functions are no copies of each other."""
    shapes = [tensor.shape for tensor in layer.first.tensors.values()] if layer.first else []
    operations = [node.op for node in (layer.first, *layer.stages) if node]
    return *operations, *shapes, layers.graph.values[layer.value].shape


def _instructions(layers: IntegerLayers, layer: Layer) -> float:
    value, node = layers.graph.values[layer.value], layer.first
    elements = prod(value.shape)
    stages = _STAGE * elements * len(layer.stages)
    if node is None:
        return stages + _MOVE * elements
    if node.op == "binary_conv":
        signs = _of_signs(layers, node, prod(value.shape[1:]), -(-value.shape[0] // EIGHT))
        return signs + (stages if layer.stages[1:] and layer.value not in layers.ends else 0)
    if node.op == "conv":
        each = _PAIRED if layers.sees_pixels(node) else _PRODUCT
        return elements * (each * prod(node.tensors["weight"].shape[1:]) + _SUM)
    read = sum(prod(layers.graph.values[name].shape) for name in node.inputs)
    return stages + _MOVE * (read + elements)


def _of_signs(layers: IntegerLayers, node: Node, pixels: int, blocks: int) -> float:
    of = layers.counting(node)
    if of is None:
        return 10.0 * prod(node.tensors["weight"].shape) * pixels
    each = {"count_threes": _THREE / 3, "count_row": _TAP, "count_row_directly": _DIRECT}[of.kind]
    made = 0 if of.kind == "count_row_directly" else _WORD * 4 * of.taps * of.planes
    return blocks * (made + pixels * (each * of.taps * of.planes + _END))


def expect_fits(
    layers: IntegerLayers, flash: int, ram: int, max_flash: int | None, max_ram: int | None, *, counted: bool
) -> None:
    """Raise InputError if a network needs more memory than there is; it names what takes most."""
    at_most = "" if counted else "at most "
    if max_ram is not None and ram > max_ram:
        over = ram - layers.arena_bytes
        widths = (percent for percent in range(99, 0, -1) if layers.narrowed(percent) + over <= max_ram)
        percent = next(widths, None)
        smaller = f"with at most {percent} % of each layer's channels" if percent else "on smaller images"
        raise InputError(
            f"--max-ram {max_ram}",
            expected="RAM for the arena",
            found=f"{ram} bytes; {layers.largest}",
            fix=f"allow {ram}, or train it {smaller}",
        )
    if max_flash is not None and flash > max_flash:
        name, size = max(layers.constant_bytes.items(), key=lambda item: item[1])
        over = flash - max_flash
        smaller = f"at most {size - over} bytes of weights there" if over < size else "fewer layers"
        raise InputError(
            f"--max-flash {max_flash}",
            expected="flash for code and weights",
            found=f"{at_most}{flash} bytes; layer {name!r} takes {size} of them",
            fix=f"allow {flash}, or train it with {smaller}",
        )
