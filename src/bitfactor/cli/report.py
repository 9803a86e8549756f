"""`bitfactor report DIR -o FILE`: the page of a training or of a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.report import Format, report
from bitfactor.cli.arguments import OptionalOutput, parse
from bitfactor.cli.output import call_and_print


@dataclass(frozen=True)
class Arguments:
    """Write a page about a run, or about a study: the paper's tables and figures from what was measured.

    Exported files that stand in the directory are timed too; what those of a study weigh and take is kept in
    its speed.json.
    """

    directory: tyro.conf.Positional[Path]
    """Directory of a run or of a study, or a study as one file (--format parquet)."""
    output: OptionalOutput = None
    """File to write; report.html (or .md, .csv, .parquet) in the directory if left out."""
    format: Format = "html"
    """One page; Markdown with a folder of figures beside it; a line for each epoch of a run or each training
    of a study; all of a study but its networks in one file."""
    data: Path | None = None
    """Directory of the data: for runs of recipes that need one, and for studies of poses to show examples."""
    json: bool = False
    """Print JSON: of a study, what was found."""


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    call_and_print(report, parse(Arguments, "report", arguments))
