"""A trial of a recipe: a few steps, nothing written."""

import itertools
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

from bitfactor.convert import Plan, binarize_
from bitfactor.result import Result
from bitfactor.training.preparation import Experiment, prepare
from bitfactor.training.recipe import Recipe
from bitfactor.training.step import Stepper
from bitfactor.training.task import EVALUATION_BATCH

_KIB = 1024
_WARM_UP, _STEPS, _SECONDS = 2, 30, 10.0


@dataclass(frozen=True)
class Trial(Result):
    """What a run would be like.

    `seconds` are those of one step with its batch, `evaluation` those of one evaluation, `memory` is the most
    used, in bytes.
    """

    plan: Plan | None
    device: str
    parameters: int
    steps: int
    epochs: int
    loss: float
    seconds: float
    evaluation: float
    evaluations: int
    memory: int

    @property
    def hours(self) -> float:
        """How long all steps and evaluations would take."""
        steps = self.seconds * self.steps * self.epochs
        return (steps + self.evaluation * self.evaluations) / 3600

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"hours": self.hours}

    def __str__(self) -> str:
        plan = "all layers real" if self.plan is None else str(self.plan)
        return (
            f"{plan}\n\n"
            f"{self.parameters:,} parameters; loss of the first batch {self.loss:.3f}\n"
            f"{self.epochs} epochs of {self.steps:,} steps, {self.seconds:.3f} s each on {self.device}, "
            f"{self.evaluations} evaluations of {self.evaluation:.1f} s: {duration(self.hours)}\n"
            f"memory: {self.memory / 2**20:,.0f} MiB; nothing was written"
        )


def dry_run(
    recipe: Recipe,
    *,
    data: Path | None = None,
    teacher: nn.Module | None = None,
    device: str = "auto",
    start_from: nn.Module | None = None,
) -> Trial:
    """Do what the first steps of a run do, and part of an evaluation, and time them after a warm-up.

    Raises
    ------
    InputError
        As `train`.
    """
    experiment = prepare(recipe, data, device)
    fabric, adapted = experiment.fabric, experiment.recipe
    stepper = Stepper(experiment, teacher, start_from)
    share = fabric.global_rank, fabric.world_size
    plan = adapted.optimization
    batches = itertools.chain.from_iterable(
        experiment.data.train_batches(plan.batch_size, plan.seed, epoch, 0, *share)
        for epoch in itertools.count()
    )
    loss, times = 0.0, list[float]()
    began = time.perf_counter()
    while len(times) < _STEPS and (len(times) < _WARM_UP + 2 or time.perf_counter() - began < _SECONDS):
        started = time.perf_counter()
        inputs, target = fabric.to_device(next(batches))
        found = float(stepper.loss_of(inputs, target, 0))
        stepper.update()
        loss = loss or found
        times.append(time.perf_counter() - started)
    return Trial(
        plan=None if recipe.real else binarize_(adapted.model(), adapted.binarization, dry_run=True),
        device=str(fabric.device),
        parameters=sum(parameter.numel() for parameter in stepper.network.parameters()),
        steps=experiment.steps,
        epochs=plan.epochs,
        loss=loss,
        seconds=mean(times[_WARM_UP:]),
        evaluation=_seconds_of_evaluation(experiment, stepper),
        evaluations=-(-plan.epochs // plan.eval_interval),
        memory=_memory(fabric.device),
    )


def _seconds_of_evaluation(experiment: Experiment, stepper: Stepper) -> float:
    """Return how long the test set takes, from its first batches."""
    fabric = experiment.fabric
    model = stepper.evaluated.eval()
    images = experiment.identity["test"] or 0
    if experiment.recipe.optimization.limit is not None:
        images = min(images, experiment.recipe.optimization.limit)
    done, started = 0, time.perf_counter()
    with torch.no_grad():
        for batch in experiment.data.test_batches(EVALUATION_BATCH):
            inputs, _ = fabric.to_device(batch)
            model(inputs)
            done += len(inputs)
            if time.perf_counter() - started > _SECONDS / 2:
                break
    return (time.perf_counter() - started) / max(done, 1) * max(images, done) / fabric.world_size


def duration(hours: float) -> str:
    """Return hours as a person says them.

    >>> duration(0.02), duration(3.21)
    ('72 s', '3.2 hours')
    """
    if hours < 0.05:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} minutes" if hours < 1.5 else f"{hours:.1f} hours"


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * _KIB
