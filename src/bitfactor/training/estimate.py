"""What a training would take: from a few steps on noise, without data; or from its own, nothing written."""

import itertools
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from bitfactor.binarization import Plan, binarize_
from bitfactor.common.checks import checked
from bitfactor.common.result import Result
from bitfactor.decompositions.precision import cpu_multiplies_bfloat16
from bitfactor.training.optimization import Optimization, optimizer_of
from bitfactor.training.processes import launch
from bitfactor.training.recipe import Experiment, Recipe, prepare
from bitfactor.training.step import Source, Stepper, build
from bitfactor.training.tasks import EVALUATION_BATCH, Classification

_PIXELS, _LEAST = 2 * 224 * 224, 2  # of the smaller of two batches on a CPU
_REPEATED = 2  # times that a step is taken again: the faster one counts


@dataclass(frozen=True)
class Estimate(Result):
    """Hours, bytes of memory and operations, in 1e18, of a training of so many steps."""

    device: str
    parameters: int
    steps: int
    hours: float
    memory: int
    exaflops: float


def estimate(recipe: Recipe, images: tuple[int, int]) -> Estimate:
    """Estimate the cost of a recipe with so many images to train on and to evaluate on.

    On a CPU two small batches tell what grows with the batch and what does not. An evaluation counts a third
    of a step. Memory is what is kept for the backward pass, the parameters, their gradients and the
    optimizer's.
    """
    plan = recipe.optimization
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = build(recipe).train().to(device)
    optimizer = optimizer_of(network, plan)

    def measured(batch: int) -> NDArray[np.float64]:
        return _measured(recipe, network, optimizer, torch.randn(batch, *recipe.input_shape, device=device))

    small = max(_LEAST, _PIXELS // prod(recipe.input_shape[1:]))
    if device.type == "cuda" or 2 * small >= plan.batch_size:
        step = measured(plan.batch_size)
    else:
        one, two = measured(small), measured(2 * small)
        step = two + (plan.batch_size / small - 2) * (two - one).clip(0)
    seconds, kept, operations = step.tolist()
    trained, evaluated = (min(n, plan.limit or n) for n in images)
    steps = trained // plan.batch_size * plan.epochs
    counted = steps + evaluated / plan.batch_size * -(-plan.epochs // plan.eval_interval) / 3
    states = [value for state in optimizer.state.values() for value in state.values()]
    weights = sum(parameter.nbytes for parameter in network.parameters())
    return Estimate(
        device=f"this CPU, {torch.get_num_threads()} threads" if device.type == "cpu" else "this GPU",
        parameters=sum(parameter.numel() for parameter in recipe.model().parameters()),
        steps=steps,
        hours=seconds * counted / 3600,
        memory=int(kept) + 2 * weights + sum(v.nbytes for v in states if isinstance(v, Tensor)),
        exaflops=operations * counted / 1e18,
    )


def _measured(
    recipe: Recipe, network: nn.Module, optimizer: Optimizer, inputs: Tensor
) -> NDArray[np.float64]:
    """Return what a step takes: seconds, bytes kept for the backward pass, operations.

    Bytes are without the parameters, each memory once.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    kept: dict[int, int] = {}
    half = recipe.optimization.precision == "bfloat16"

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=half):
            loss = _loss(recipe, network, inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if inputs.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as operations, saved_tensors_hooks(keep, lambda tensor: tensor):
        step()
    seconds = min(step() for _ in range(_REPEATED))
    return np.array([seconds, sum(kept.values()), operations.get_total_flops()])


def _loss(recipe: Recipe, network: nn.Module, inputs: Tensor) -> Tensor:
    outputs = network(inputs)
    if isinstance(recipe.task, Classification):
        return recipe.task.loss(outputs, torch.zeros(len(inputs), dtype=torch.long, device=inputs.device))
    maps = outputs[-1] if isinstance(outputs, tuple) else outputs
    heatmaps = torch.full(maps.shape, 0.1, device=maps.device)
    return recipe.task.loss(outputs, {"heatmaps": heatmaps, "weight": heatmaps[:, :, 0, 0]})


_KIB = 1024
_WARM_UP, _STEPS, _SECONDS = 2, 30, 10.0
_QUICKER = 0.9  # of a step, which is worth a word
_LONG = 0.5  # hours, of which compiling is little


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
    total: int
    loss: float
    seconds: float
    evaluation: float
    evaluations: int
    memory: int
    spread: tuple[float, float]
    """Seconds of the fastest and of the slowest step."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a step with other flags, which were tried too."""

    @property
    def hours(self) -> float:
        """How long all steps and evaluations would take."""
        return self._hours(self.seconds)

    @property
    def hours_range(self) -> tuple[float, float]:
        """The same, were all steps as the fastest one, and as the slowest one."""
        fastest, slowest = self.spread
        return self._hours(fastest), self._hours(slowest)

    def _hours(self, seconds: float) -> float:
        return (seconds * self.total + self.evaluation * self.evaluations) / 3600

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"hours": self.hours, "hours_range": list(self.hours_range)}

    def __str__(self) -> str:
        plan = "all layers real" if self.plan is None else str(self.plan)
        tip, best = "", self.seconds
        for flags, seconds in self.others.items():
            if seconds < _QUICKER * best:
                tip, best = f"{tip}with {flags} a step takes {seconds:.3f} s\n", seconds
        return (
            f"{plan}\n\n"
            f"{self.parameters:,} parameters; loss of the first batch {self.loss:.3f}\n"
            f"{self.total:,} steps in {self.epochs} epochs, {self.seconds:.3f} s each on {self.device}, "
            f"{self.evaluations} evaluations of {self.evaluation:.1f} s: {duration(self.hours)}, "
            f"{between(self.hours_range)} by the fastest and the slowest of its steps\n{tip}"
            f"memory: {self.memory / 2**20:,.0f} MiB; nothing was written"
        )


@checked
def dry_run(
    recipe: Recipe,
    *,
    data: Path | None = None,
    teacher: nn.Module | None = None,
    device: str = "auto",
    start_from: Source | None = None,
    seconds: float = _SECONDS,
    try_others: bool = False,
) -> Trial:
    """Do what the first steps of a run do, and part of an evaluation, and time them after a warm-up.

    Steps take about so many `seconds`, and the evaluation half as many. So do steps with other flags, where
    they are to be tried. These are bfloat16 with the channels last and, where the run takes long, a compiled
    network.

    Raises
    ------
    InputError
        As `train`.
    """
    experiment = prepare(recipe, data, device)
    fabric, adapted = experiment.fabric, experiment.recipe
    stepper = Stepper(experiment, teacher, start_from, head_images=0)
    plan = adapted.optimization
    loss, (usual, least, most) = _timed(experiment, stepper, seconds)
    trial = Trial(
        plan=None if recipe.real else binarize_(adapted.model(), adapted.binarization, dry_run=True),
        device=str(fabric.device),
        parameters=sum(parameter.numel() for parameter in stepper.network.parameters()),
        steps=min(experiment.steps, experiment.total),
        epochs=plan.epochs,
        total=experiment.total,
        loss=loss,
        seconds=usual,
        evaluation=_seconds_of_evaluation(experiment, stepper, seconds / 2),
        evaluations=-(-plan.epochs // plan.eval_interval),
        memory=_memory(fabric.device),
        spread=(least, most),
    )
    if not try_others:
        return trial

    def step_of(changed: Optimization) -> float | None:
        other = replace(experiment, recipe=replace(adapted, optimization=changed))
        return _seconds_of_step(other, teacher, device, start_from, seconds / 2)

    return replace(trial, others=_others(plan, fabric.device.type, trial, step_of))


def _timed(experiment: Experiment, stepper: Stepper, seconds: float) -> tuple[float, list[float]]:
    """Return the loss of the first batch, and the mean, least and most seconds of a step over both stages."""
    first = experiment.recipe.first_stage * experiment.steps
    starts = [0, first] if first else [0]
    found = [_first_steps(experiment, stepper, seconds / len(starts), step) for step in starts]
    of_stages = np.array([(mean(times), min(times), max(times)) for _, times in found])
    shares = np.diff([*starts, max(experiment.total, first + 1)])
    return found[0][0], np.average(of_stages, 0, shares).tolist()


def _first_steps(
    experiment: Experiment, stepper: Stepper, seconds: float, step: int
) -> tuple[float, list[float]]:
    """Return the loss of the first batch, and how long steps like this one took, after a warm-up."""
    fabric, plan = experiment.fabric, experiment.recipe.optimization
    share = fabric.global_rank, fabric.world_size
    batches = itertools.chain.from_iterable(
        experiment.data.train_batches(plan.batch_size, plan.seed, epoch, 0, *share)
        for epoch in itertools.count()
    )
    loss, times = 0.0, list[float]()
    began = time.perf_counter()
    while len(times) < _STEPS and (len(times) < _WARM_UP + 2 or time.perf_counter() - began < seconds):
        started = time.perf_counter()
        if len(times) == _WARM_UP:
            began = started
        inputs, target = fabric.to_device(next(batches))
        found = float(stepper.loss_of(inputs, target, step))
        stepper.update()
        loss = loss or found
        times.append(time.perf_counter() - started)
    return loss, times[_WARM_UP:]


def _others(
    plan: Optimization, device: str, trial: Trial, step_of: Callable[[Optimization], float | None]
) -> dict[str, float]:
    """Return the seconds of a step with other flags; those that the network does not take are left out.

    A compiled network is tried on top of bfloat16 where that is quicker, and of a run that takes long alone.
    """
    found, flags, best = dict[str, float](), "", trial.seconds
    half = replace(plan, precision="bfloat16", channels_last=True)
    if half != plan and (device != "cpu" or cpu_multiplies_bfloat16()):
        flags = "--precision bfloat16 --channels-last"
        if seconds := step_of(half):
            found[flags] = seconds
    if found.get(flags, best) < _QUICKER * best:
        plan = half
    else:
        flags = ""
    is_worth = trial.hours > _LONG and not (plan.compile or plan.diagnose)
    if is_worth and (seconds := step_of(replace(plan, compile=True))):
        found[f"{flags} --compile".strip()] = seconds
    return found


def _seconds_of_step(
    experiment: Experiment,
    teacher: nn.Module | None,
    device: str,
    start_from: Source | None,
    seconds: float,
) -> float | None:
    """Return the seconds of a step, or None where the network cannot be trained so."""
    other = replace(experiment, fabric=launch(experiment.recipe.optimization, device))
    try:
        _, (usual, *_) = _timed(other, Stepper(other, teacher, start_from, head_images=0), seconds)
    except Exception:  # whatever a compiler raises, or a network that takes no such type
        return None
    return usual


def _seconds_of_evaluation(experiment: Experiment, stepper: Stepper, most: float) -> float:
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
            if time.perf_counter() - started > most:
                break
    return (time.perf_counter() - started) / max(done, 1) * max(images, done) / fabric.world_size


def duration(hours: float) -> str:
    """Return hours as a person says them."""
    if hours < 0.05:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} minutes" if hours < 1.5 else f"{hours:.1f} hours"


def between(hours: tuple[float, float]) -> str:
    """Return a range of hours as a person says it."""
    return " to ".join(map(duration, hours))


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * _KIB
