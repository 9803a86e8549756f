"""`bitfactor report DIR -o FILE`: the page of a training or of a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.output import print_json
from bitfactor.errors import InputError
from bitfactor.report.study import is_study

Format = Literal["html", "markdown", "csv"]


@dataclass(frozen=True)
class Arguments:
    """Write a page about a run, or about a study: the paper's tables and figures from what was measured.

    Exported files that stand in the directory are measured too; what those of a study weigh and take is kept
    in its speed.json.
    """

    directory: tyro.conf.Positional[Path]
    """Directory of a run or of a study."""
    output: Output
    """File to write."""
    format: Format = "html"
    """Of a study: one page, Markdown with a folder of figures beside it, or one line per training."""
    data: Path | None = None
    """Directory of the data: for runs of recipes that need one, and for studies of poses to show examples."""
    json: bool = False
    """Print JSON: of a study, what was found."""


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    options = parse(Arguments, "report", arguments)
    found: dict[str, object] = {}
    if is_study(options.directory):
        from bitfactor.cli.report_study import write_study

        found = write_study(options.directory, options.output, options.format, options.data)
    else:
        _write_run(options)
    if options.json:
        print_json({"output": str(options.output), **found})
    else:
        print(options.output)


def _write_run(options: Arguments) -> None:
    if options.format != "html":
        raise InputError(
            f"--format {options.format}", expected="a study", found="none", fix="leave it out for a run"
        )
    from bitfactor.cli.report_run import write_run_page

    write_run_page(options.directory, options.output, options.data)
