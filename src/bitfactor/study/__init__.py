"""What trainings left: cells, records, statistics, tables, figures, pages."""

from pathlib import Path

from bitfactor.common.checks import checked
from bitfactor.study.choices import Choices
from bitfactor.study.directory import CellDirectory, StudyDirectory, finish
from bitfactor.study.grid import REAL, Cell, Grid, Row, Study, Training, Value
from bitfactor.study.jobs import Job, run_jobs

__all__ = [
    "REAL",
    "Cell",
    "CellDirectory",
    "Choices",
    "Grid",
    "Job",
    "Row",
    "Study",
    "StudyDirectory",
    "Training",
    "Value",
    "finish",
    "is_study",
    "read_study",
    "run_jobs",
]


@checked
def is_study(path: Path) -> bool:
    """Return whether a path is the directory of a study, or a study as one file."""
    return StudyDirectory(path).begun or path.suffix == ".parquet"


@checked
def read_study(path: Path) -> Study:
    """Read the directory of a study, finished or not, or a study as one file.

    Raises
    ------
    InputError
        If there is none, or one of its files cannot be read.

    Example
    -------
    >>> [training.metric("accuracy") for training in read_study(Path("runs/t")).finished]
    [0.9611, 0.9583]
    """
    if path.suffix == ".parquet":
        from bitfactor.study.table import read_table  # pyarrow is only needed here

        return read_table(path)
    return StudyDirectory(path).read()
