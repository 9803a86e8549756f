"""`bitfactor check-data DIR`: what is wrong with the data, before a run finds out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_table, status
from bitfactor.data.check import check
from bitfactor.data.findings import Findings

_SHOWN = 10


@dataclass(frozen=True)
class Arguments:
    """Read all of a data set and list what is wrong with it; the exit status is 1 if anything is."""

    directory: tyro.conf.Positional[Path]
    """Directory of CIFAR batches, of pictures in class directories, or of a shards.json."""
    json: bool = False
    """Print all findings as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Print the findings, and return 1 if there are problems."""
    options = parse(Arguments, "check-data", arguments)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=status, transient=True) as progress:
        task = progress.add_task(str(options.directory), total=None)
        findings = check(
            options.directory, lambda done, total: progress.update(task, completed=done, total=total)
        )
    if options.json:
        print_json(asdict(findings))
    else:
        _print(options.directory, findings)
    return 1 if findings.problems else 0


def _print(directory: Path, findings: Findings) -> None:
    rows = [("layout", findings.layout), ("classes", str(findings.classes))]
    rows += [(f"pictures, {part}", f"{count:,}") for part, count in findings.pictures.items()]
    rows += [
        (side, f"{low} to {high}, median {middle}") for side, (low, middle, high) in findings.sizes.items()
    ]
    rows += [(mode, f"{count:,}") for mode, count in findings.modes.items()]
    print_table((str(directory), ""), rows)
    for title, kinds in (("problem", findings.problems), ("note", findings.notes)):
        for kind, concerned in kinds.items():
            print(f"\n{title}: {kind} ({len(concerned)})")
            for what in concerned[:_SHOWN]:
                print(f"  {what}")
            if len(concerned) > _SHOWN:
                print(f"  ... and {len(concerned) - _SHOWN} more; --json lists all")
    if not findings.problems:
        print("\nno problems")
