"""The page of a training or of a study."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bitfactor.api.report_run import write_run_page
from bitfactor.api.report_study import write_study
from bitfactor.checks import checked
from bitfactor.errors import InputError
from bitfactor.report.study import is_study
from bitfactor.result import Result, plain

Format = Literal["html", "markdown", "csv"]

_SUFFIXES: dict[Format, str] = {"html": ".html", "markdown": ".md", "csv": ".csv"}


@dataclass(frozen=True)
class Report(Result):
    """The file that was written; of a study, `found` is what was found, as plain types."""

    output: Path
    found: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"output": str(self.output), **plain(self.found)}

    def __str__(self) -> str:
        return str(self.output)


@checked
def report(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    format: Format = "html",
    data: str | os.PathLike[str] | None = None,
) -> Report:
    """Write a page about a run, or about a study: the paper's tables and figures from what was measured.

    Exported files that stand in the directory are measured too; what those of a study weigh and take is kept
    in its speed.json.

    Parameters
    ----------
    output
        File to write; `report.html` (or .md, .csv) in the directory if left out.
    format
        Of a study: one page, Markdown with a folder of figures beside it, or one line per training.
    data
        Directory of the data: for runs of recipes that need one, and for studies of poses to show examples.

    Raises
    ------
    InputError
        If the directory is neither a run nor a study, or the file cannot be written.

    Example
    -------
    >>> print(bitfactor.report("runs/t"))
    runs/t/report.html
    """
    source, images = Path(directory), None if data is None else Path(data)
    target = source / f"report{_SUFFIXES[format]}" if output is None else Path(output)
    _expect_file(target, format)
    if is_study(source):
        return Report(target, write_study(source, target, format, images))
    if format != "html":
        raise InputError("format", expected="html for a run", found=format, fix="leave it out")
    write_run_page(source, target, images)
    return Report(target)


def _expect_file(path: Path, format: Format) -> None:
    if path.is_dir():
        found, fix = "a directory", f"name a file, {path / f'report{_SUFFIXES[format]}'} say"
        raise InputError(path, expected="a file to write", found=found, fix=fix)
    others = {suffix: name for name, suffix in _SUFFIXES.items() if name != format}
    if path.suffix in others:
        raise InputError(
            path, expected=f"a name for {format}", found=path.suffix, fix=f"pass format {others[path.suffix]}"
        )
