"""Train a recipe, and read what a run left."""

from bitfactor.training.classification import Classification
from bitfactor.training.loop import build, evaluate, restore, train
from bitfactor.training.recipe import Optimization, Recipe
from bitfactor.training.run import Run
from bitfactor.training.task import Task

__all__ = ["Classification", "Optimization", "Recipe", "Run", "Task", "build", "evaluate", "restore", "train"]
