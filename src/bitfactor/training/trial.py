"""A trial of a recipe: one batch forward and backward, nothing written."""

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bitfactor.convert import Plan, binarize_
from bitfactor.training.preparation import prepare
from bitfactor.training.recipe import Recipe
from bitfactor.training.step import Stepper

_KIB = 1024


@dataclass(frozen=True)
class Trial:
    """What a run would be like: `seconds` are those of one step, `memory` is the most used, in bytes."""

    plan: Plan | None
    device: str
    parameters: int
    steps: int
    epochs: int
    loss: float
    seconds: float
    memory: int

    @property
    def hours(self) -> float:
        """How long all steps would take, without the measurements between them."""
        return self.seconds * self.steps * self.epochs / 3600

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return {
            "plan": self.plan.to_dict() if self.plan else None,
            "device": self.device,
            "parameters": self.parameters,
            "steps": self.steps,
            "epochs": self.epochs,
            "loss": self.loss,
            "seconds": self.seconds,
            "memory": self.memory,
            "hours": self.hours,
        }

    def __str__(self) -> str:
        plan = "all layers real" if self.plan is None else str(self.plan)
        return (
            f"{plan}\n\n"
            f"{self.parameters:,} parameters; loss of the first batch {self.loss:.3f}\n"
            f"{self.epochs} epochs of {self.steps:,} steps, {self.seconds:.3f} s each on {self.device}: "
            f"{self.hours:.1f} hours\n"
            f"memory: {self.memory / 2**20:,.0f} MiB; nothing was written"
        )


def dry_run(recipe: Recipe, *, data: Path | None = None, teacher: nn.Module | None = None) -> Trial:
    """Do what the first step of a run does, but for changing parameters, twice, and time the second.

    Raises
    ------
    InputError
        As `train`.
    """
    experiment = prepare(recipe, data)
    fabric, adapted = experiment.fabric, experiment.recipe
    stepper = Stepper(experiment, teacher)
    share = fabric.global_rank, fabric.world_size
    plan = adapted.optimization
    batch = next(iter(experiment.data.train_batches(plan.batch_size, plan.seed, 0, 0, *share)))
    inputs, target = fabric.to_device(batch)
    for _ in range(2):
        started = time.perf_counter()
        loss = float(stepper.loss_of(inputs, target, 0))
        seconds = time.perf_counter() - started
    return Trial(
        plan=None if recipe.real else binarize_(adapted.model(), adapted.binarization, dry_run=True),
        device=str(fabric.device),
        parameters=sum(parameter.numel() for parameter in stepper.network.parameters()),
        steps=experiment.steps,
        epochs=plan.epochs,
        loss=loss,
        seconds=seconds,
        memory=_memory(fabric.device),
    )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * _KIB
