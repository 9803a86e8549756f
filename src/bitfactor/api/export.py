"""A run's network, or an exported one, as a file of any format."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output
from bitfactor.format import ModelFile, load
from bitfactor.format.low_precision import Real
from bitfactor.runtime.zoo import locate
from bitfactor.targets.c99 import CPrecision, CReport, export_c

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
    overwrite: bool = False,
) -> "ExportReport | OnnxReport | CReport":
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears.

    Parameters
    ----------
    run
        Directory of a run; for ONNX and C, an exported file, or a network of `bitfactor zoo`, as well.
    output
        File to write.
    format
        A model file of bitfactor; standard ONNX; ONNX whose signs are QONNX's BipolarQuant; C99 for
        microcontrollers, with a header beside it. Left out, what the name's ending says.
    best
        Take the checkpoint of its best epoch in place of the last.
    real
        How weights of real-valued layers are stored.
    calibration
        Take ranges for precision `low` from so many training images.
    precision
        Of C alone: `integer` computes with integers from the first pixel to the class, the same on every
        machine, and needs no floating point.
    overwrite
        Replace a file that bitfactor did not write.
    """
    run = locate(run)
    expect_output(output, _FORMATS, overwrite=overwrite, flag="--output")
    _expect_possible(run, output, format, changed=best or calibration != 0 or real != "float32")
    form = format or _FORMATS[output.suffix.lower()]
    if precision != "highest" and form != "c":
        raise InputError(
            f"--precision {precision}",
            expected="a name in .c, or --format c",
            found=f"--format {form}",
            fix="leave it out: a file is run in any precision, as Session(path, precision=...) says",
        )
    export = partial(_export_run, run, best=best, real=real, calibration=calibration)
    if form == "bitfactor":
        return export(output, overwrite=overwrite)
    if form == "c":
        return export_c(_model(run, export), output, precision=precision, overwrite=overwrite)
    onnx = imported("bitfactor.targets.onnx", f"bitfactor export --format {form}", "onnx")
    report: OnnxReport = onnx.export_onnx(
        _model(run, export), output, "standard" if form == "onnx" else "qonnx", overwrite=overwrite
    )
    return report


def _export_run(run: Path, output: Path, **options: Any) -> "ExportReport":
    exporting = imported("bitfactor.recipes.exporting", "bitfactor export", "train")
    report: ExportReport = exporting.export_run(exporting.Run(run), output, **options)
    return report


def _model(source: Path, export: Callable[[Path], object]) -> ModelFile:
    if source.is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        export(path)
        return load(path)


def _expect_possible(source: Path, output: Path, format: Format | None, *, changed: bool) -> None:
    suffix = output.suffix.lower()
    if format and suffix != _ENDINGS[format]:
        raise InputError(
            f"--output {output}",
            expected=f"a name in {_ENDINGS[format]} with --format {format}",
            found=suffix,
            fix="rename it, or leave out --format",
        )
    if source.is_file() and changed:
        raise InputError(
            source,
            expected="the directory of a run, with --best, --real or --calibration",
            found="an exported file, whose weights are what they are",
            fix="name the run, or leave these flags out",
        )
