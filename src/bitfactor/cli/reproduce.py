"""`bitfactor reproduce TABLE --data DIR --out DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.reproduce import reproduce
from bitfactor.cli.arguments import parse
from bitfactor.cli.output import call_and_print
from bitfactor.study.paper import Exhibit


@dataclass(frozen=True)
class Arguments:
    """Train the rows of a table or figure of the paper, exactly those, and show them beside the paper's.

    What is finished is not repeated: the same command resumes, and tables and figures of the same experiment
    may share a directory and with it their rows.
    """

    exhibit: tyro.conf.Positional[Exhibit]
    """A table or figure of the paper."""
    out: Path
    """Directory of the trainings and the page."""
    data: Path | None = None
    """Directory of the data: MPII or ImageNet; with --small Leeds Sports Pose or CIFAR-10."""
    small: bool = False
    """The same rows with a small network, small data and few steps."""
    seeds: int | None = None
    """Trainings of each row; 1, or 2 with --small, if left out."""
    jobs: int | None = None
    """Trainings at a time on the CPU, as of `bitfactor ablate`."""
    devices: tuple[str, ...] = ()
    """Where to train, as of `bitfactor ablate`."""
    dry_run: bool = False
    """Say what time and memory it would take, and train nothing; needs no data."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the table, or what it would take."""
    call_and_print(reproduce, parse(Arguments, "reproduce", arguments))
