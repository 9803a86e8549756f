"""`bitfactor export RUN -o FILE`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import tyro

from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.output import print_result
from bitfactor.errors import InputError, imported
from bitfactor.exporter import ExportReport, Real
from bitfactor.format import ModelFile, load
from bitfactor.recipes.exporting import export_run
from bitfactor.training import Run

if TYPE_CHECKING:
    from bitfactor.exporter.onnx import OnnxReport

Format = Literal["onnx", "qonnx"]


def export_as_onnx(
    source: Path, output: Path, format: Format, export: Callable[[Path], object]
) -> "OnnxReport":
    """Write ONNX to `output`, from a model file or, where `source` is a run, from what `export` writes of it.

    Raises
    ------
    InputError
        If a package is not installed, or ONNX Runtime does not give the same.
    """
    onnx = imported("bitfactor.exporter.onnx", f"bitfactor export --format {format}", "onnx")
    kind = "standard" if format == "onnx" else "qonnx"
    report: OnnxReport = onnx.export_onnx(_model(source, export), output, kind)
    return report


def _model(source: Path, export: Callable[[Path], object]) -> ModelFile:
    if source.is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.safetensors"
        export(path)
        return load(path)


Form = Literal["bitfactor", "onnx"]
_FORMATS: dict[str, Form] = {".safetensors": "bitfactor", ".onnx": "onnx"}


@dataclass(frozen=True)
class Arguments:
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears."""

    run: tyro.conf.Positional[Path]
    """Directory of a run; for ONNX, an exported file as well."""
    output: Output
    """File to write."""
    best: bool = False
    """Take the checkpoint of its best epoch in place of the last."""
    format: Literal["bitfactor", "onnx", "qonnx"] | None = None
    """A model file of bitfactor; standard ONNX; ONNX whose signs are QONNX's BipolarQuant. Left out, what
    the name's ending says."""
    real: Real = "float32"
    """How weights of real-valued layers are stored."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Export and print the report."""
    options = parse(Arguments, "export", arguments)
    _expect_possible(options)
    form = options.format or _FORMATS[options.output.suffix.lower()]
    if form == "bitfactor":
        report: ExportReport | OnnxReport = _export(options, options.output)
    else:
        report = export_as_onnx(options.run, options.output, form, partial(_export, options))
    print_result(report, as_json=options.json)


def _expect_possible(options: Arguments) -> None:
    """Raise InputError where the flags contradict each other or the name of the file."""
    output, suffix = options.output, options.output.suffix.lower()
    if output.is_dir():
        fix = f"name a file, {output / 'net.safetensors'} say"
        raise InputError(f"--output {output}", expected="a file to write", found="a directory", fix=fix)
    if suffix not in _FORMATS:
        found = suffix or "no ending"
        raise InputError(
            f"--output {output}", expected="a name in .safetensors or .onnx", found=found, fix="rename it"
        )
    form = options.format
    if form and (form == "bitfactor") != (_FORMATS[suffix] == "bitfactor"):
        ending = ".safetensors" if form == "bitfactor" else ".onnx"
        raise InputError(
            f"--output {output}",
            expected=f"a name in {ending} with --format {form}",
            found=suffix,
            fix="rename it, or leave out --format",
        )
    if options.run.is_file() and (options.best or options.real != "float32"):
        raise InputError(
            options.run,
            expected="the directory of a run, with --best or --real",
            found="an exported file, whose weights are what they are",
            fix="name the run, or leave these flags out",
        )


def _export(options: Arguments, output: Path) -> ExportReport:
    return export_run(Run(options.run), output, best=options.best, real=options.real)
