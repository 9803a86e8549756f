"""A recipe: everything that defines an experiment, complete and frozen."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from bitfactor.binarization import Binarization
from bitfactor.binarization.binarization import Named, every
from bitfactor.data import DataSet
from bitfactor.decompositions import WITH_FACTORS, class_of
from bitfactor.nn.scale import LEARNED
from bitfactor.training.optimization import Optimization
from bitfactor.training.tasks import Task


@dataclass(frozen=True)
class Recipe:
    """One experiment: a network, data, what to make binary and how to train.

    `model` builds the float network and `data` loads the data set, from the directory that the user names if
    it needs one; both are functions, so that a recipe costs nothing until it is used. `input_shape` is that
    of one image, (C, H, W).

    Where `model` or `data` is a frozen dataclass that can be called, its fields are options: flags of the
    command line, and part of a run's settings. If `data` has `input_shape`, that is the recipe's.

    `real` leaves the network as `model` builds it: the full-precision baseline. `adapt`, if set, makes the
    recipe fit its data, as to the number of classes.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", getattr(self.data, "input_shape", self.input_shape))

    def settings(self) -> dict[str, Any]:
        """Return what can differ between two runs of this recipe, as plain types."""
        return {
            "recipe": self.name,
            "real": self.real,
            "model": _options(self.model),
            "data": _options(self.data),
            "binarization": asdict(self.binarization),
            "optimization": asdict(self.optimization),
        }

    def with_settings(self, settings: dict[str, Any]) -> "Recipe":
        """Return this recipe with the settings of a run."""
        return replace(
            self,
            real=settings["real"],
            model=_with_options(self.model, settings["model"]),
            data=_with_options(self.data, settings["data"]),
            binarization=Binarization(**settings["binarization"]),
            optimization=Optimization(**{k: _frozen(v) for k, v in settings["optimization"].items()}),
        )

    def idle(self) -> dict[str, str]:
        """Return the options that change nothing for it, and what each of them needs."""
        chosen = self.binarization
        binary = {"activations": chosen.activations, "weights": chosen.weights}
        return without_effect(chosen.latent, chosen.scale, real=self.real, **binary)

    def adapted(self, data: DataSet) -> "Recipe":
        """Return this recipe as it fits its data."""
        return self if self.adapt is None else self.adapt(self, data)


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
        names += ["factor_rate", "merge_epoch", "diagnose", "gradient_floor", "silent_decay", "freeze_flips"]
        names += ["real_weight_epochs", "real_weight_rate", "real_weight_decay"]
        return dict.fromkeys(names, "a binary network")
    latents, scales = every("latent", latent), every("scale", scale)
    found = {} if "holistic" in latents else {"groups": "the latent holistic"}
    if not activations:
        found["activation_estimator"] = "binary activations"
    if not weights:
        found["weight_estimator"] = "binary weights"
    takes = {name for one in latents for name in class_of(one).takes}
    found |= {name: "a latent with factors" for name in WITH_FACTORS if name not in takes}
    if "orthogonality" not in takes:
        found["orthogonality"] = "factors that start orthonormal"
    if "analytic" not in scales:
        found["detach_alpha"] = "scale 'analytic'"
    if not {*LEARNED} & {*scales}:
        found["alpha_start"] = "a learned scale"
    if {*latents} == {"none"}:
        found["merge_epoch"] = "a decomposition to merge"
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
    return type(part)(**{_RENAMED.get(name, name): _frozen(value) for name, value in options.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
