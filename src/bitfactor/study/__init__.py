"""A study: one recipe trained for every combination of what varies, in a directory of its own."""

from bitfactor.study.directory import CellDirectory, Rates, StudyDirectory
from bitfactor.study.grid import Cell, Grid, Value
from bitfactor.study.outcome import finish
from bitfactor.study.schedule import Job, run_jobs

__all__ = [
    "Cell",
    "CellDirectory",
    "Grid",
    "Job",
    "Rates",
    "StudyDirectory",
    "Value",
    "finish",
    "run_jobs",
]
