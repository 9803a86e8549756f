"""A network in integers as what a board's own tools build: a library, and an example from frame to class.

A directory here holds the files of a board. In them `@name@` is what the network's functions begin with,
`@file@` what its files are called. They come into `src`, and `camera_frame.h`, which all boards share,
beside the example.
"""

import os
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal, get_args

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_output, write_file
from bitfactor.common.result import Result
from bitfactor.format import ModelFile
from bitfactor.targets.c99 import CoreName, CReport, export_c

Board = Literal["arduino", "esp-idf", "pico", "zephyr"]

_HERE = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_FRAME = 2 * 96 * 96  # bytes of the frame in camera_frame.h
_EXAMPLES: dict[Board, str] = {
    "arduino": "examples/Camera",
    "esp-idf": "examples/camera/main",
    "pico": "examples/camera",
    "zephyr": "samples/camera/src",
}


@dataclass(frozen=True)
class Kit(Result):
    """A directory for a board that was written, its files, and what is said of the network in it."""

    directory: Path
    board: Board
    files: tuple[str, ...]
    network: CReport

    def __str__(self) -> str:
        how = f"{self.directory / 'README.md'} says how to build it"
        return f"{self.directory}: {len(self.files)} files for {self.board}; {how}\n{self.network}"


@checked
def write_kit(
    model: ModelFile,
    directory: str | os.PathLike[str],
    board: Board,
    *,
    core: CoreName | None = None,
    max_ram: int | None = None,
    max_flash: int | None = None,
    overwrite: bool = False,
) -> Kit:
    """Write what the tools of `board` build, to a directory whose name the network takes.

    The limits are those of `export_c`, with a Cortex-M0+ for the core that is left out.

    Raises
    ------
    InputError
        If the network does not classify images or does not fit, the directory's name is none for a network,
        or files cannot be written. Also if one is there that bitfactor did not write, without `overwrite`.

    Example
    -------
    >>> write_kit(bitfactor.format.load("net.safetensors"), "flowers", "arduino").files[0]
    'README.md'
    """
    directory = Path(directory)
    _expect_classes(model)
    _expect_name(directory)
    of_board = [file for file in (_HERE / board).rglob("*") if file.is_file()]
    files = {file.relative_to(_HERE / board).as_posix(): file for file in of_board}
    files[f"{_EXAMPLES[board]}/camera_frame.h"] = _HERE / "camera_frame.h"
    for name in files:
        expect_output(directory / name, overwrite=overwrite)
    report = export_c(
        model,
        directory / "src" / f"{directory.resolve().name}.c",
        precision="integer",
        core=core or "cortex-m0plus",
        max_ram=max_ram,
        max_flash=max_flash,
        overwrite=overwrite,
    )
    for name, file in files.items():
        write_file(directory / name, _filled(file.read_text(encoding="utf-8"), model, report))
    written = [*files, *(f"src/{Path(name).name}" for name in (report.source, report.header))]
    return Kit(directory, board, tuple(sorted(written)), report)


def _filled(text: str, model: ModelFile, report: CReport) -> str:
    """Return a template with the network's name in it, that of the files, and the bytes that it takes."""
    words = {
        "name": report.prefix,
        "NAME": report.prefix.upper(),
        "file": Path(report.source).stem,
        "label": f"{report.prefix}_labels[number]" if model.labels else '(void)number, ""',
        "ram": str(report.ram),
        "more": str(_buffers(model)),
        "flash": str(report.flash),
    }
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _buffers(model: ModelFile) -> int:
    """Return the bytes that the example holds beside the network: a frame, pixels and scores."""
    graph = model.graph
    return _FRAME + prod(graph.input.shape) + 4 * prod(graph.values[graph.outputs[0]].shape)


def _expect_classes(model: ModelFile) -> None:
    shapes = [model.graph.values[name].shape for name in model.graph.outputs]
    if model.input_spec is None or not model.input_spec.of_images:
        found = "no input specification of images, with one channel or three"
    elif len(shapes) != 1 or len(shapes[0]) != 1:
        found = f"outputs shaped {', '.join(map(str, shapes))}"
    else:
        return
    raise InputError(
        "--board",
        expected="a network for images that gives classes",
        found=found,
        fix="leave it out, and write a program around the two files of C99",
    )


def _expect_name(directory: Path) -> None:
    name = directory.resolve().name
    if not _NAME.fullmatch(name):
        raise InputError(
            f"--output {directory}",
            expected="a directory whose name begins with a letter, and has letters, digits, - and _ alone",
            found=repr(name),
            fix="call it after what it finds, say my_flowers",
        )
    if name.lower() in (*get_args(Board), "main", "camera", "camera_frame"):
        raise InputError(
            f"--output {directory}",
            expected="a name for the network, which its header has",
            found=f"{name!r}, which names a header or program already",
            fix=f"call it after what it finds, say {name}_flowers",
        )
