"""`bitfactor export RUN -o FILE`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.export_onnx import export_as_onnx
from bitfactor.cli.output import print_json
from bitfactor.errors import InputError
from bitfactor.exporter import ExportReport, Real
from bitfactor.recipes.exporting import export_run
from bitfactor.training import Run

if TYPE_CHECKING:
    from bitfactor.exporter.onnx import OnnxReport


@dataclass(frozen=True)
class Arguments:
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears."""

    run: tyro.conf.Positional[Path]
    """Directory of a run; for ONNX, an exported file as well."""
    output: Output
    """File to write."""
    best: bool = False
    """Take the checkpoint of its best epoch in place of the last."""
    format: Literal["bitfactor", "onnx", "qonnx"] = "bitfactor"
    """A model file of bitfactor; standard ONNX; ONNX whose signs are QONNX's BipolarQuant."""
    real: Real = "float32"
    """How weights of real-valued layers are stored."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Export and print the report."""
    options = parse(Arguments, "export", arguments)
    if options.run.is_file() and (options.best or options.real != "float32"):
        raise InputError(
            options.run,
            expected="the directory of a run, with --best or --real",
            found="an exported file, whose weights are what they are",
            fix="name the run, or leave these flags out",
        )
    if options.format == "bitfactor":
        report: ExportReport | OnnxReport = _export(options, options.output)
    else:
        report = export_as_onnx(options.run, options.output, options.format, partial(_export, options))
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)


def _export(options: Arguments, output: Path) -> ExportReport:
    return export_run(Run(options.run), output, best=options.best, real=options.real)
