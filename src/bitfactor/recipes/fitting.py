"""A recipe that takes so many minutes: network, image side and epochs from steps that are measured here.

Photos are taught by a network of ImageNet where one is installed and leaves enough epochs.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from torch.distributed import is_torchelastic_launched

from bitfactor.common.errors import InputError
from bitfactor.recipes import recipe_of
from bitfactor.recipes.own import option_values, with_options
from bitfactor.recipes.runs import LITE, has_lite, side_of_teacher, teacher_of
from bitfactor.training import Recipe, Run, Trial, dry_run
from bitfactor.training.estimate import duration

ENOUGH = 30
"""Epochs that a network needs before a larger one, or larger images, gain more (docs/results/parts.md)."""
_LEAST, _MOST = 3, 200  # epochs
_EVALUATIONS = 10
_USED = 0.93  # of the time: the rest is for starting, checkpoints and steps slower than those measured
_MEASURED = 4.0  # seconds of steps for each size
_TYPES = ("float32", "bfloat16")
_TOGETHER = {"blocks", "widths"}  # of one length

Measure = Callable[[Recipe], Trial]


class TooShortError(InputError):
    """A time that is too short: `needed` are the minutes for a few epochs of the smallest size."""

    def __init__(self, smallest: "_Fit", minutes: float) -> None:
        self.needed = smallest.minutes(_LEAST)
        super().__init__(
            "minutes",
            expected=f"{math.ceil(100 * self.needed) / 100:g} or more, for {_LEAST} epochs of {smallest}",
            found=str(minutes),
            fix="give it more time, or fewer images with --limit",
        )


@dataclass(frozen=True)
class _Fit:
    """A size with its options, and the seconds of an epoch and of an evaluation."""

    options: Mapping[str, Any]
    epoch: float
    evaluation: float

    @classmethod
    def of(cls, options: Mapping[str, Any], trial: Trial) -> "_Fit":
        return cls(options, trial.seconds * trial.steps, trial.evaluation)

    def epochs(self, minutes: float) -> int:
        return max((n for n in range(_MOST + 1) if self.minutes(n) <= minutes), default=0)

    def minutes(self, epochs: int) -> float:
        evaluations = -(-epochs // _interval(epochs))
        return (epochs * self.epoch + evaluations * self.evaluation) / _USED / 60

    def __str__(self) -> str:
        told = [(name, self.options[name]) for name in ("size", "widths", "teacher") if name in self.options]
        words = (f"{name} {' '.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in told)
        return ", ".join(words) or "the recipe's network"


def _interval(epochs: int) -> int:
    """Return the epochs between evaluations, of which there are ten at most."""
    return max(1, -(-epochs // _EVALUATIONS))


def fitted(
    recipe: Recipe,
    minutes: float,
    named: Collection[str],
    *,
    out: Path,
    data: Path | None,
    device: str,
    console: Console,
) -> Recipe:
    """Return the recipe of the largest of its sizes that so many minutes give enough epochs, and say which.

    Options that are `named` stay as they are. A run that was begun goes on with what it chose then.

    Raises
    ------
    InputError
        If the time is too short for a few epochs of the smallest size, or there are several processes.
    """
    if Run(out).checkpoint.exists():
        return _as_begun(recipe, recipe_of(Run(out)), named)
    if is_torchelastic_launched():
        fix = "name --epochs instead"
        raise InputError(
            "minutes", expected="one process, which measures", found="those of torchrun", fix=fix
        )

    teacher = recipe.optimization.teacher
    if teacher and recipe.sizes is not None and "size" not in named and (side := side_of_teacher(teacher)):
        recipe, named = with_options(recipe, {"size": side}), {*named, "size"}

    def measure(one: Recipe) -> Trial:
        return dry_run(one, data=data, teacher=teacher_of(one), device=device, seconds=_MEASURED)

    console.print(f"{recipe.name}: looking what fits into {duration(minutes / 60)}", soft_wrap=True)
    chosen, larger = _taught(recipe, minutes, named, data, measure)
    epochs = chosen.epochs(minutes)
    if epochs < _LEAST:
        raise TooShortError(chosen, minutes)
    plan = recipe.optimization
    first = max(1, epochs * plan.real_weight_epochs // plan.epochs) if plan.real_weight_epochs else 0
    warm = min(plan.warmup_epochs, min(first or epochs, epochs - first) / 2)
    along = {"eval_interval": _interval(epochs), "real_weight_epochs": first, "warmup_epochs": warm}
    more = "" if larger is None else f"; {larger} from {duration(larger.minutes(ENOUGH) / 60)} on"
    console.print(
        f"{recipe.name}: {chosen}, {epochs} epochs of {duration(chosen.epoch / 3600)}{more}", soft_wrap=True
    )
    free = {name: value for name, value in along.items() if name not in named}
    return with_options(recipe, {**chosen.options, "epochs": epochs, **free})


def _as_begun(recipe: Recipe, begun: Recipe, named: Collection[str]) -> Recipe:
    """Return `recipe` with all that was not named as in a run that was begun before."""
    before, now = option_values(begun), option_values(recipe)
    if begun.name != recipe.name or before.keys() != now.keys():
        return recipe
    return with_options(recipe, {name: before[name] for name in now if name not in named})


def _taught(
    recipe: Recipe, minutes: float, named: Collection[str], data: Path | None, measure: Measure
) -> tuple[_Fit, _Fit | None]:
    """Return what `_largest` does: with a teacher where one leaves enough epochs, and else without."""
    sizes = _distinct(recipe, () if recipe.sizes is None else recipe.sizes(recipe.data(data)), named)
    same = {} if recipe.sizes is None or "precision" in named else _faster(recipe, sizes[0], measure)
    if recipe.sizes is not None and not {"teacher", "teacher_weight"} & {*named} and has_lite():
        taught = _largest(recipe, minutes, sizes, {**same, "teacher": LITE}, measure)
        if taught[0].epochs(minutes) >= ENOUGH:
            return taught
    return _largest(recipe, minutes, sizes, same, measure)


def _largest(
    recipe: Recipe,
    minutes: float,
    sizes: Sequence[Mapping[str, Any]],
    same: Mapping[str, Any],
    measure: Measure,
) -> tuple[_Fit, _Fit | None]:
    """Return the largest size with enough epochs, and the next one, if there is one that was measured.

    All have the options that are the `same`.
    """
    fits = [_Fit({}, 0, 0) for _ in sizes]
    low, high = 0, len(sizes)
    while low < high:  # all below low have enough epochs, none from high on has
        middle = (low + high) // 2
        options = {**sizes[middle], **same}
        fits[middle] = _Fit.of(options, measure(with_options(recipe, options)))
        if fits[middle].epochs(minutes) >= ENOUGH:
            low = middle + 1
        else:
            high = middle
    return fits[max(low - 1, 0)], fits[low] if 0 < low < len(sizes) else None


def _distinct(
    recipe: Recipe, sizes: Collection[Mapping[str, Any]], named: Collection[str]
) -> list[dict[str, Any]]:
    """Return the sizes without the options that are named, each once; without sizes, one of no options."""
    kept = {*named, *(_TOGETHER if _TOGETHER & {*named} else ())}
    free = ({name: value for name, value in size.items() if name not in kept} for size in sizes)
    return [*{repr(size): size for size in free}.values()] or [{}]


def _faster(recipe: Recipe, size: Mapping[str, Any], measure: Measure) -> dict[str, Any]:
    """Return the number type whose steps take less here."""
    seconds = {one: measure(with_options(recipe, {**size, "precision": one})).seconds for one in _TYPES}
    return {"precision": min(seconds, key=seconds.__getitem__)}
