"""One loop over a recipe, the directory it writes, and its metrics."""

from bitfactor.training.estimate import Trial, dry_run
from bitfactor.training.loop import DivergedError, train
from bitfactor.training.optimization import OPTIMIZERS, Optimization
from bitfactor.training.processes import TerminatedError, is_first
from bitfactor.training.recipe import Recipe, without_effect
from bitfactor.training.run import Run
from bitfactor.training.step import Source, build, restore
from bitfactor.training.tasks import (
    Classification,
    Interface,
    PoseEstimation,
    Task,
    Teachable,
    Teacher,
    evaluate,
)

__all__ = [
    "OPTIMIZERS",
    "Classification",
    "DivergedError",
    "Interface",
    "Optimization",
    "PoseEstimation",
    "Recipe",
    "Run",
    "Source",
    "Task",
    "Teachable",
    "Teacher",
    "TerminatedError",
    "Trial",
    "build",
    "dry_run",
    "evaluate",
    "is_first",
    "restore",
    "train",
    "without_effect",
]
