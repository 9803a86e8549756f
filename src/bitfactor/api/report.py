"""The page of a training or of a study."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bitfactor.api.report_run import log_table, run_document
from bitfactor.api.report_study import study_document, summary_of, with_speed
from bitfactor.checks import checked
from bitfactor.errors import InputError
from bitfactor.report.formats import write_csv, write_html, write_markdown
from bitfactor.result import Result, plain
from bitfactor.study import Study, is_study, read_study
from bitfactor.study.tables import trainings

Format = Literal["html", "markdown", "csv", "parquet"]

_SUFFIXES: dict[Format, str] = {"html": ".html", "markdown": ".md", "csv": ".csv", "parquet": ".parquet"}


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

    Exported files that stand in the directory are timed too; what those of a study weigh and take is kept
    in its speed.json.

    Parameters
    ----------
    directory
        Of a run or of a study; or a study as one file, which an earlier report wrote as parquet.
    output
        File to write; `report.html` (or .md, .csv, .parquet) in the directory if left out.
    format
        One page; Markdown with a folder of figures beside it; csv, a line for each epoch of a run or each
        training of a study; parquet, all of a study but its networks in one file.
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
    folder = source.parent if source.is_file() else source
    target = folder / f"report{_SUFFIXES[format]}" if output is None else Path(output)
    _expect_file(target, format)
    if is_study(source):
        study = read_study(source)
        _write_study(study, target, format, images)
        return Report(target, summary_of(study))
    if format == "parquet":
        raise InputError("format", expected="html, markdown or csv for a run", found=format, fix="name one")
    if format == "csv":
        write_csv(log_table(source), target)
    else:
        (write_html if format == "html" else write_markdown)(run_document(source, images), target)
    return Report(target)


def _write_study(study: Study, target: Path, format: Format, images: Path | None) -> None:
    if format == "csv":
        write_csv(trainings(study), target)
    elif format == "parquet":
        from bitfactor.study.table import write_table  # pyarrow is only needed here

        write_table(with_speed(study), target)
    else:
        (write_html if format == "html" else write_markdown)(study_document(study, images), target)


def _expect_file(path: Path, format: Format) -> None:
    if path.is_dir():
        found, fix = "a directory", f"name a file, {path / f'report{_SUFFIXES[format]}'} say"
        raise InputError(path, expected="a file to write", found=found, fix=fix)
    if path.suffix.lower() in (".pdf", ".png", ".svg", ".json", ".txt", ".docx", ".tex", ".xlsx"):
        raise InputError(
            path, expected=f"a name for {format}", found=path.suffix, fix=f"end it {_SUFFIXES[format]}"
        )
    others = {suffix: name for name, suffix in _SUFFIXES.items() if name != format}
    if path.suffix in others:
        raise InputError(
            path, expected=f"a name for {format}", found=path.suffix, fix=f"pass format {others[path.suffix]}"
        )
