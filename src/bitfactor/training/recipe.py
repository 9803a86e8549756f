"""A recipe, everything that defines an experiment, and what a run of it needs before its first step."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from bitfactor.binarization import Binarization
from bitfactor.binarization.binarization import Named, every
from bitfactor.common.checks import as_tuples, checked
from bitfactor.common.errors import InputError
from bitfactor.common.machine import keep_freed_memory
from bitfactor.data import Batch, DataSet, identity_of
from bitfactor.data.readers.identity import Identity, which_images
from bitfactor.decompositions import WITH_FACTORS, class_of
from bitfactor.format import InputSpec
from bitfactor.nn.scale import LEARNED
from bitfactor.training.optimization import Optimization
from bitfactor.training.processes import launch
from bitfactor.training.tasks import Interface, Task


@dataclass(frozen=True)
class Recipe:
    """One experiment: a network, data, what to make binary and how to train.

    `model` builds the float network and `data` loads the data set, from the directory that the user names if
    it needs one. Both are functions, so that a recipe costs nothing until it is used. `input_shape` is that
    of one image, (C, H, W).

    Where `model` or `data` is a frozen dataclass that can be called, its fields are options. They are flags
    of the command line, and part of a run's settings. If `data` has `input_shape`, that is the recipe's.

    `real` leaves the network as `model` builds it: the full-precision baseline. `adapt`, if set, makes the
    recipe fit its data, as to the number of classes.

    `sizes`, if set, gives the options of networks and images from small to large, for images such as the
    data's. A training in so many `minutes` takes one of these. With `minutes` of its own, a recipe does so
    unless its epochs or steps are named.
    """

    name: str
    description: str
    model: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    data: Callable[[Path | None], DataSet]
    task: Task
    binarization: Binarization
    optimization: Optimization
    real: bool = False
    adapt: "Callable[[Recipe, DataSet], Recipe] | None" = None
    sizes: Callable[[DataSet], Sequence[Mapping[str, Any]]] | None = None
    minutes: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", getattr(self.data, "input_shape", self.input_shape))

    def parts(self) -> dict[str, Any]:
        """Return what has options, by name."""
        return {name: getattr(self, name) for name in ("model", "data", "binarization", "optimization")}

    def settings(self) -> dict[str, Any]:
        """Return what can differ between two runs of this recipe, as plain types."""
        options = {name: _options(part) for name, part in self.parts().items()}
        return {"recipe": self.name, "real": self.real, **options}

    def defaults(self) -> dict[str, Any]:
        """Return the settings that its options have by themselves: what a version before them was like."""
        return {
            name: {one.name: one.default for one in fields(part) if one.default is not MISSING}
            for name, part in self.parts().items()
            if is_dataclass(part)
        }

    def with_settings(self, settings: dict[str, Any]) -> "Recipe":
        """Return this recipe with the settings of a run."""
        parts = {name: _with_options(part, settings[name]) for name, part in self.parts().items()}
        return replace(self, real=settings["real"], **parts)

    def idle(self) -> dict[str, str]:
        """Return the options that change nothing for it, and what each of them needs."""
        chosen, plan = self.binarization, self.optimization
        binary = {"activations": chosen.activations, "weights": chosen.weights}
        found = without_effect(chosen.latent, chosen.scale, real=self.real, **binary)
        if not (plan.weight_decay or plan.real_weight_decay):
            found["decayed"] = "a weight decay"
        return {**found, **getattr(self.data, "idle", dict)()}

    @property
    def first_stage(self) -> int:
        """Epochs in which only activations are binary, before those in which weights are too."""
        return self.optimization.real_weight_epochs if self.binarization.weights and not self.real else 0

    def adapted(self, data: DataSet) -> "Recipe":
        """Return this recipe as it fits its data."""
        return self if self.adapt is None else self.adapt(self, data)


_FIRST_STAGE = "real_weight_epochs", "real_weight_rate", "real_weight_decay"
OF_FLIPS = "gradient_floor", "silent_decay", "freeze_flips"


@checked
def without_effect(
    latent: Named, scale: Named, *, real: bool = False, activations: bool = True, weights: bool = True
) -> dict[str, str]:
    """Return the options that change nothing for these, or a real network, and what each of them needs.

    `activations` and `weights` say which of the two are binary.

    >>> without_effect("svd", "learned")
    {'groups': 'the latent holistic', 'detach_alpha': "scale 'analytic'"}
    """
    if real:
        names = [field.name for field in fields(Binarization)]
        names += ["factor_rate", "latent_rate", "alpha_rate"]
        names += ["merge_epoch", "diagnose"]
        return dict.fromkeys([*names, *OF_FLIPS, *_FIRST_STAGE], "a binary network")
    latents, scales = every("latent", latent), every("scale", scale)
    found = {} if "holistic" in latents else {"groups": "the latent holistic"}
    if not activations:
        found |= dict.fromkeys(["activation_estimator", "input_scale"], "binary activations")
    if not weights:
        found |= dict.fromkeys(["weight_estimator", *_FIRST_STAGE, *OF_FLIPS], "binary weights")
    takes = {name for one in latents for name in class_of(one).takes}
    found |= {name: "a latent with factors" for name in WITH_FACTORS if name not in takes}
    if "orthogonality" not in takes:
        found["orthogonality"] = "factors that start orthonormal"
    if "analytic" not in scales:
        found["detach_alpha"] = "scale 'analytic'"
    if not {*LEARNED} & {*scales}:
        found |= dict.fromkeys(["alpha_start", "alpha_rate"], "a learned scale")
    if {*latents} == {"none"}:
        found["merge_epoch"] = "a decomposition to merge"
    else:
        found |= dict.fromkeys(OF_FLIPS, "the latent none")
    return found


def _options(part: object) -> dict[str, Any]:
    if not is_dataclass(part) or isinstance(part, type):
        return {}
    plain: dict[str, Any] = json.loads(json.dumps(asdict(part)))
    return plain


_RENAMED = {"joints": "keypoints"}  # options that files of an earlier version hold, and the zoo's among them


def _with_options(part: Any, options: dict[str, Any]) -> Any:
    """Return `part` with these options; one that did not exist yet when they were stored has its default."""
    if not options:
        return part
    return type(part)(**{_RENAMED.get(name, name): as_tuples(value) for name, value in options.items()})


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
    """Tell where NaN or infinity comes from: the inputs, a parameter, or the first module that gives it."""
    if not inputs.isfinite().all():
        return "the inputs"
    for name, parameter in model.named_parameters():  # statistics may have been spoiled by these very inputs
        if not parameter.isfinite().all():
            return f"the parameter {name}"
    found: list[str] = []

    def look(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not output.isfinite().all():
            found.append(f"the output of {name} ({type(module).__name__})")

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name:
                hooks.enter_context(module.register_forward_hook(partial(look, name)))
        model(inputs)
    return found[0] if found else "the loss"


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
    images = identity["test"]
    identity["evaluated"] = "" if images is None else which_images(data, images, plan.limit)
    interface = Interface.of(data)
    adapted = recipe.adapted(data)
    if move := getattr(data, "to", None):
        data = move(fabric.device)
    if plan.limit is not None:
        if fewer := getattr(data, "limited", None):
            data = fewer(plan.limit)
        data = Limited(data, plan.limit)
    steps = data.steps(plan.batch_size)
    if steps < 1:
        expected = f"at most the {identity['train']:,} training images"
        raise InputError(
            "--batch-size",
            expected=expected + (f" and --limit {plan.limit}" if plan.limit else ""),
            found=str(plan.batch_size),
            fix="choose a smaller one",
        )
    if plan.steps is not None:
        adapted = replace(adapted, optimization=replace(plan, epochs=-(-plan.steps // steps)))
    return Experiment(adapted, fabric, data, interface, steps, identity)


@dataclass(frozen=True)
class Limited:
    """At most `limit` images of `whole` in an epoch, in whole batches, and `limit` to evaluate on.

    These are the first, or of a data set that is `limited`, equally many of each class.
    """

    whole: DataSet
    limit: int

    @property
    def input_spec(self) -> InputSpec:
        return self.whole.input_spec

    @property
    def labels(self) -> tuple[str, ...]:
        return self.whole.labels

    @property
    def test_name(self) -> str:
        """Which images are evaluated on."""
        return getattr(self.whole, "test_name", "test images")

    @property
    def note(self) -> str:
        """What is to be said before a training."""
        return getattr(self.whole, "note", "")

    def steps(self, batch_size: int) -> int:
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
            yield inputs[:left], tree_map(itemgetter(slice(left)), target)
            left -= len(inputs)
            if left <= 0:
                break
