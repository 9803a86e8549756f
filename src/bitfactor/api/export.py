"""A network for elsewhere: a file of any format, one flat program, a web page. Only a run needs torch."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, write_file
from bitfactor.common.result import Result
from bitfactor.format import ModelFile, load
from bitfactor.format.low_precision import Real
from bitfactor.runtime.session import MOST_THREADS
from bitfactor.runtime.zoo import locate
from bitfactor.targets.c99 import CoreName, CPrecision, CReport, export_c
from bitfactor.targets.frozen import FlatPrecision, flat_program
from bitfactor.targets.kits import Board, Kit, write_kit
from bitfactor.targets.page import MODULE, Page, write_page

if TYPE_CHECKING:
    from bitfactor.exporter import ExportReport
    from bitfactor.targets.onnx import OnnxReport

Format = Literal["bitfactor", "onnx", "qonnx", "c"]

_FORMATS: dict[str, Format] = {".safetensors": "bitfactor", ".onnx": "onnx", ".c": "c"}
_ENDINGS: dict[Format, str] = {"bitfactor": ".safetensors", "onnx": ".onnx", "qonnx": ".onnx", "c": ".c"}


def write_network(
    run: Path,
    output: Path,
    *,
    format: Format | None = None,
    best: bool = False,
    real: Real = "float32",
    calibration: int = 0,
    precision: CPrecision = "highest",
    board: Board | None = None,
    core: CoreName | None = None,
    max_ram: int | None = None,
    max_flash: int | None = None,
    overwrite: bool = False,
) -> "ExportReport | OnnxReport | CReport | Kit":
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears.

    Parameters
    ----------
    run
        Directory of a run; for ONNX and C, an exported file, or a network of `bitfactor zoo`, as well.
    output
        File to write; with `board`, a directory.
    format
        A model file of bitfactor; standard ONNX; ONNX whose signs are QONNX's BipolarQuant; C99 for
        microcontrollers, with a header beside it. Left out, what the name's ending says.
    best
        Take the checkpoint of its best epoch in place of the last.
    real
        How weights of real-valued layers are stored.
    calibration
        Take ranges for the precisions `low` and `integer` from so many training images. Of a full-precision
        run as ONNX: also write it in int8, as NAME-int8.onnx.
    precision
        Of C alone: `integer` computes with integers from the first pixel to the class, the same on every
        machine, and needs no floating point.
    board
        Of C in integers: write a directory that the board's own tools build. It is an Arduino library, a
        component of ESP-IDF, a project for the Pico SDK or a Zephyr module. An example goes from a camera's
        frame to a class.
    core
        Of C in integers: the CPU whose instructions are counted, where its compiler and emulator are
        installed, or else estimated; cortex-m0plus if left out.
    max_ram
        Of C in integers: bytes of RAM that there are, without the stack.
    max_flash
        Of C in integers: bytes of flash that there are for code and weights.
    overwrite
        Replace a file that bitfactor did not write.
    """
    run = locate(run)
    form = format or ("c" if board else _FORMATS.get(output.suffix.lower(), "c"))
    changed = best or calibration != 0 or real != "float32"
    if not board:
        endings, flag = ([_ENDINGS[format]], f"--format {format} -o") if format else (_FORMATS, "--output")
        expect_output(output, endings, overwrite=overwrite, flag=flag)
    if run.is_file() and changed:
        raise InputError(
            run,
            expected="the directory of a run, with --best, --real or --calibration",
            found="an exported file, whose weights are what they are",
            fix="name the run, or leave these flags out",
        )
    limits = max_ram is not None or max_flash is not None
    _expect_c(form, precision, of_integers=limits or bool(board or core))
    export = partial(_export_run, run, best=best, real=real, calibration=calibration)
    if form == "bitfactor" and run.is_file():
        raise InputError(
            run,
            expected="the directory of a run",
            found="an exported file already",
            fix="copy it, or choose another form: -o NAME.onnx, -o NAME.c",
        )
    int8 = _int8_path(run, output, form, precision, overwrite) if calibration else None
    if form == "bitfactor":
        return export(output, overwrite=overwrite)
    if board or form == "c":
        write = partial(write_kit, board=board) if board else partial(export_c, precision=precision)
        of = core or ("cortex-m0plus" if precision == "integer" else None)
        return write(
            _model(run, export), output, core=of, max_ram=max_ram, max_flash=max_flash, overwrite=overwrite
        )
    onnx = imported("bitfactor.targets.onnx", f"bitfactor export --format {form}", "onnx")
    report: OnnxReport = onnx.export_onnx(
        _model(run, export), output, "standard" if form == "onnx" else "qonnx", overwrite=overwrite
    )
    if int8 is not None:
        _write_int8(run, output, int8, calibration)
        report = replace(report, int8=str(int8))
    return report


def _int8_path(run: Path, output: Path, form: Format, precision: CPrecision, overwrite: bool) -> Path | None:
    """Return where ONNX in int8 goes, None of another form; InputError where ranges are of no use."""
    if form == "bitfactor" or (form == "c" and precision == "integer"):
        return None
    runs = imported("bitfactor.recipes.runs", "bitfactor export", "train")
    if form == "c" or not runs.recipe_of(runs.Run(run)).real:
        raise InputError(
            "--calibration",
            expected="a file in .safetensors, C with --precision integer, or a full-precision run as ONNX",
            found="C in real numbers" if form == "c" else "a binary run as ONNX",
            fix="leave it out",
        )
    return expect_output(
        output.with_name(f"{output.stem}-int8.onnx"), [".onnx"], overwrite=overwrite, flag="--output"
    )


def _write_int8(run: Path, output: Path, path: Path, calibration: int) -> None:
    """Write a full-precision run's network beside its ONNX file in int8, with ranges from training images."""
    runs = imported("bitfactor.recipes.runs", "bitfactor export", "train")
    engine = imported("bitfactor.engines.with_onnxruntime", "--calibration", "onnx")
    proto, _ = engine.of_one_sample(output)
    samples = runs.training_images(runs.recipe_of(runs.Run(run)), runs.Run(run), calibration).numpy()
    write_file(path, engine.quantised(proto, samples[:, None]).SerializeToString())


def _export_run(run: Path, output: Path, **options: Any) -> "ExportReport":
    exporting = imported("bitfactor.recipes.runs", "bitfactor export", "train")
    report: ExportReport = exporting.export_run(exporting.Run(run), output, **options)
    return report


def _model(source: Path, export: Callable[[Path], object]) -> ModelFile:
    if source.is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        export(path)
        return load(path)


def _expect_c(form: Format, precision: CPrecision, *, of_integers: bool) -> None:
    if precision != "highest" and form != "c":
        raise InputError(
            f"--precision {precision}",
            expected="a name in .c, or --format c",
            found=f"--format {form}",
            fix="leave it out: a file is run in any precision, as Session(path, precision=...) says",
        )
    if of_integers and precision != "integer":
        raise InputError(
            "--board, --core, --max-ram, --max-flash",
            expected="--precision integer",
            found=f"--precision {precision}",
            fix="add it, or leave them out",
        )


SUFFIX = ".bfp"


@dataclass(frozen=True)
class Frozen(Result):
    """A program that was written; `arena_bytes` is the memory for values that a sample takes as it runs."""

    path: Path
    bytes: int
    input_shape: tuple[int, ...]
    instructions: int
    arena_bytes: int
    threads: int

    def __str__(self) -> str:
        shape = "x".join(map(str, self.input_shape))
        return (
            f"{self.path}: {self.bytes:,} bytes, {self.instructions} instructions for an input of {shape}, "
            f"{self.arena_bytes:,} bytes of memory a sample, threads {self.threads}"
        )


@checked
def freeze(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    threads: int = 1,
    precision: FlatPrecision = "highest",
    overwrite: bool = False,
) -> Frozen:
    """Write an exported network as one flat program, which the C library runs from memory as it is.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    output
        File to write, NAME.bfp.
    size
        Height and width of the input; the file's own if left out.
    threads
        Threads that run it, unless the program that loads it says otherwise.
    precision
        `integer` has no real number from the first pixel to the class; see `Session`.
    overwrite
        Replace a file that bitfactor did not write.

    Raises
    ------
    InputError
        If the file cannot be read, the network does not run at that size, or `output` cannot be written.

    Example
    -------
    >>> bitfactor.freeze("digits", "digits.bfp").instructions
    46
    """
    output = expect_output(output, [SUFFIX], overwrite=overwrite, flag="--output")
    if not 1 <= threads <= MOST_THREADS:
        raise InputError("threads", expected=f"1 to {MOST_THREADS}", found=str(threads), fix="pass threads=1")
    loaded = load(locate(model))
    loaded.expect_one_input(output)
    try:
        program = flat_program(loaded, size, threads, precision)
    except InputError as error:
        if size is None or size == loaded.graph.input.shape[1:]:
            raise
        where, expected = f"--size {' '.join(map(str, size))}", "a size that the network takes"
        raise InputError(where, expected=expected, found=str(error), fix="choose another") from error
    write_file(output, program.content)
    return Frozen(
        output, len(program.content), program.input_shape, program.instructions, program.arena_bytes, threads
    )


@checked
def page(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    precision: FlatPrecision = "highest",
    overwrite: bool = False,
) -> Page:
    """Write a static web page that runs an exported network on photos and on the camera, in the browser.

    Parameters
    ----------
    model
        Exported file, or a network of `bitfactor zoo`.
    output
        Directory of the page, for any web server.
    precision
        `integer` gives the same bits in every browser; see `Session`.
    overwrite
        Replace files in it that bitfactor did not write.

    Raises
    ------
    InputError
        If the file cannot be read, does not say how an image becomes its input, or gives neither classes nor
        keypoints. If `output` cannot be written.

    Example
    -------
    >>> bitfactor.page("lsp-hourglass", "site").directory
    PosixPath('site')
    """
    path, index = locate(model), Path(output) / "index.html"
    names = [] if index.is_file() else [*MODULE, "net.bfp"]
    for name in ("index.html", *names):
        expect_output(Path(output) / name, overwrite=overwrite, flag="--output")
    loaded = load(path)
    loaded.expect_one_input(output)
    return write_page(loaded, flat_program(loaded, precision=precision).content, path.stem, output)
