"""Networks as C, compiled for a core and run on an emulated board, whose sources lie here."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.targets.c99.instructions import real

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
