"""`bitfactor evaluate RUN` and `bitfactor evaluate FILE`; a file that classifies needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.evaluate import evaluate
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.output import call_and_print
from bitfactor.runtime import Precision


@dataclass(frozen=True)
class Arguments:
    """Evaluate a run in torch, or an exported file in the runtime, on images that it was not trained with."""

    subject: tyro.conf.Positional[Network]
    """Directory of a run, exported file, or a network of `bitfactor zoo`."""
    data: Path | None = None
    """Directory of the images: with val/, or class directories alone, all of which are evaluated. A run
    remembers its own."""
    limit: int | None = None
    """Evaluate at most so many images: equally many of each class, of instances the first."""
    best: bool = False
    """Of a run: take the checkpoint of its best epoch in place of the last."""
    confusion: Path | None = None
    """Classification: also draw the confusion matrix, as a PNG or SVG file."""
    page: Path | None = None
    """Poses: also write a page with the instances found best and worst, an HTML file."""
    flip: bool = False
    """Poses: average the heatmaps with those of the mirrored image."""
    device: str = "auto"
    """Of a run: where torch computes, as auto, cpu, cuda or cuda:1."""
    precision: Precision = "highest"
    """Of a file: that of its full-precision layers, see `Session`."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print what the evaluation found."""
    call_and_print(evaluate, parse(Arguments, "evaluate", arguments))
