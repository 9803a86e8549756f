"""`bitfactor check-data DIR`: what is wrong with the data, before a run finds out; needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_result, status
from bitfactor.data.readers.check import check_data


@dataclass(frozen=True)
class Arguments:
    """Read all of a data set and list what is wrong with it; the exit status is 1 if anything is."""

    directory: tyro.conf.Positional[Path]
    """Directory of CIFAR batches, of a shards.json, of class directories, or of LSP, MPII or COCO."""
    json: bool = False
    """Print all findings as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Print the findings, and return 1 if there are problems."""
    options = parse(Arguments, "check-data", arguments)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=status, transient=True) as progress:
        task = progress.add_task(str(options.directory), total=None)
        findings = check_data(
            options.directory, lambda done, total: progress.update(task, completed=done, total=total)
        )
    print_result(findings, as_json=options.json)
    return 1 if findings.problems else 0
