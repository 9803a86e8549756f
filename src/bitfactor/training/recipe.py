"""A recipe: everything that defines an experiment, complete and frozen."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from bitfactor.convert import Binarization
from bitfactor.data import DataSet
from bitfactor.errors import InputError
from bitfactor.training.task import Task


@dataclass(frozen=True)
class Optimization:
    """How the parameters are trained: Adam, learning rate falling to zero along half a cosine."""

    epochs: int
    batch_size: int
    learning_rate: float
    """Learning rate of the first step."""
    seed: int = 0
    """Seed of initial weights, order and augmentation."""
    checkpoint_steps: int = 100
    """Steps between checkpoints; one is written at the end of each epoch too."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "checkpoint_steps"):
            if not getattr(self, name) > 0:
                option = f"--{name.replace('_', '-')}"
                raise InputError(
                    option, expected="a number above 0", found=str(getattr(self, name)), fix="change it"
                )


@dataclass(frozen=True)
class Recipe:
    """One experiment: a network, data, what to make binary and how to train.

    `model` builds the float network and `data` loads the data set, from the directory that the user names if
    it needs one; both are functions, so that a recipe costs nothing until it is used. `input_shape` is that
    of one picture, (C, H, W).
    """

    name: str
    description: str
    model: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    data: Callable[[Path | None], DataSet]
    task: Task
    binarization: Binarization
    optimization: Optimization

    def settings(self) -> dict[str, Any]:
        """Return what can differ between two runs of this recipe, as plain types."""
        return {
            "recipe": self.name,
            "binarization": asdict(self.binarization),
            "optimization": asdict(self.optimization),
        }

    def with_settings(self, settings: dict[str, Any]) -> "Recipe":
        """Return this recipe with the settings of a run."""
        return replace(
            self,
            binarization=Binarization(**settings["binarization"]),
            optimization=Optimization(**settings["optimization"]),
        )
