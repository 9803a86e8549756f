"""What a run needs before its first step: processes, data, and the recipe as it fits them.

Where numbers first stop being numbers.

A trial of a recipe: a few steps, nothing written.
"""

import itertools
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from bitfactor.binarization import Plan, binarize_
from bitfactor.common.errors import InputError
from bitfactor.common.machine import keep_freed_memory
from bitfactor.common.result import Result
from bitfactor.data import Batch, DataSet, identity_of
from bitfactor.data.readers.identity import Identity, which_images
from bitfactor.format import InputSpec
from bitfactor.training.processes import launch
from bitfactor.training.recipe import Recipe
from bitfactor.training.step import Stepper
from bitfactor.training.tasks import EVALUATION_BATCH, Interface

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def bad_parameter(model: nn.Module) -> str | None:
    """Return the name of the first parameter or statistic that holds NaN or infinity."""
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            return name
    return None


@torch.no_grad()
def origin(model: nn.Module, inputs: Tensor) -> str:
    """Tell where NaN or infinity comes from: the inputs, a parameter, or the first module that gives it.

    Example
    -------
    >>> origin(model, inputs)
    'the output of layer1.0.conv1 (BinaryConv2d)'
    """
    if not inputs.isfinite().all():
        return "the inputs"
    for name, parameter in model.named_parameters():  # statistics may have been spoiled by these very inputs
        if not parameter.isfinite().all():
            return f"the parameter {name}"
    found: list[str] = []
    handles = [
        module.register_forward_hook(_watch(f"the output of {name} ({type(module).__name__})", found))
        for name, module in model.named_modules()
        if name
    ]
    try:
        model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss"


def _watch(what: str, found: list[str]):  # type: ignore[no-untyped-def]
    def hook(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not output.isfinite().all():
            found.append(what)

    return hook


def _evaluated(data: DataSet, images: int | None, limit: int | None) -> str:
    """Return which images the figures of a run are about."""
    return "" if images is None else which_images(data, images if limit is None else min(limit, images))


@runtime_checkable
class Movable(Protocol):
    """A data set that can live on a device."""

    def to(self, device: torch.device) -> Self:
        """Return the same data on `device`."""
        ...


@dataclass(frozen=True)
class Experiment:
    """A recipe with its data, on the processes that train it; an epoch has `steps`."""

    recipe: Recipe
    fabric: "Fabric"
    data: DataSet
    interface: Interface
    steps: int
    identity: Identity


def prepare(recipe: Recipe, directory: Path | None, device: str = "auto") -> Experiment:
    """Load the data, onto the device if they can live there, and adapt the recipe to them.

    Raises
    ------
    InputError
        If the data cannot be read, or do not fill a batch.
    """
    plan = recipe.optimization
    fabric = launch(plan, device)
    if fabric.device.type == "cpu":
        keep_freed_memory()
    data = recipe.data(directory)
    identity = identity_of(data, directory)
    identity["evaluated"] = _evaluated(data, identity["test"], plan.limit)
    interface = Interface.of(data)
    if isinstance(data, Movable):
        data = data.to(fabric.device)
    if plan.limit is not None:
        data = Limited(data, plan.limit)
    steps = data.steps(plan.batch_size)
    if steps < 1:
        images = f"{identity['train']:,} training images"
        raise InputError(
            "--batch-size",
            expected=f"at most the {images}" + (f" and --limit {plan.limit}" if plan.limit else ""),
            found=str(plan.batch_size),
            fix="choose a smaller one",
        )
    return Experiment(recipe.adapted(data), fabric, data, interface, steps, identity)


@dataclass(frozen=True)
class Limited:
    """At most `limit` images of `whole` in an epoch, in whole batches, and the first `limit` to evaluate on.

    Example
    -------
    >>> Limited(data, limit=2000).steps(batch_size=128)
    15
    """

    whole: DataSet
    limit: int

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        return self.whole.input_spec

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.whole.labels

    @property
    def test_name(self) -> str:
        """Which images are evaluated on."""
        return getattr(self.whole, "test_name", "test images")

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return min(self.whole.steps(batch_size), self.limit // batch_size)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the first batches of an epoch of `whole`."""
        batches = self.whole.train_batches(batch_size, seed, epoch, start, rank, world)
        yield from islice(batches, self.steps(batch_size) - start)

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the first test images, those with a number below the limit."""
        left = len(range(rank, self.limit, world))
        for inputs, target in self.whole.test_batches(min(batch_size, self.limit), rank, world):
            if isinstance(target, Tensor):
                yield inputs[:left], target[:left]
            else:
                yield inputs[:left], {name: values[:left] for name, values in target.items()}
            left -= len(inputs)
            if left <= 0:
                break


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
