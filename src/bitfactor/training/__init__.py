"""Train a recipe, and read what a run left."""

from bitfactor.training.classification import Classification
from bitfactor.training.evaluation import evaluate
from bitfactor.training.interface import Interface
from bitfactor.training.interruption import TerminatedError
from bitfactor.training.loop import train
from bitfactor.training.optimization import Optimization
from bitfactor.training.outcome import restore
from bitfactor.training.recipe import Recipe
from bitfactor.training.run import Run
from bitfactor.training.step import build
from bitfactor.training.task import Task, Teachable

__all__ = [
    "Classification",
    "Interface",
    "Optimization",
    "Recipe",
    "Run",
    "Task",
    "Teachable",
    "TerminatedError",
    "build",
    "evaluate",
    "restore",
    "train",
]
