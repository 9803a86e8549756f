"""What a run needs before its first step: processes, data, and the recipe as it fits them.

Where numbers first stop being numbers.

A trial of a recipe: a few steps, nothing written.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from bitfactor.common.errors import InputError
from bitfactor.common.machine import keep_freed_memory
from bitfactor.data import Batch, DataSet, identity_of
from bitfactor.data.readers.identity import Identity, which_images
from bitfactor.format import InputSpec
from bitfactor.training.processes import launch
from bitfactor.training.recipe import Recipe
from bitfactor.training.tasks import Interface

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
    return "" if images is None else which_images(data, images, limit)


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

    @property
    def total(self) -> int:
        """Steps of the whole training."""
        plan = self.recipe.optimization
        return plan.steps or self.steps * plan.epochs


def prepare(recipe: Recipe, directory: Path | None, device: str = "auto") -> Experiment:
    """Load the data, onto the device if they can live there, and adapt the recipe to them."""
    plan = recipe.optimization
    fabric = launch(plan, device)
    if fabric.device.type == "cpu":
        keep_freed_memory()
    data = recipe.data(directory)
    identity = identity_of(data, directory)
    identity["evaluated"] = _evaluated(data, identity["test"], plan.limit)
    interface = Interface.of(data)
    adapted = recipe.adapted(data)
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
    if plan.steps is not None:
        adapted = replace(adapted, optimization=replace(plan, epochs=-(-plan.steps // steps)))
    return Experiment(adapted, fabric, data, interface, steps, identity)


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
