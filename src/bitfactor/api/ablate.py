"""What a study is to train: every combination of what varies."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bitfactor.binarization.binarization import BY_LAYER, as_plain
from bitfactor.common.checks import as_tuples, checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.recipes import expect_registered, recipe_named
from bitfactor.recipes.own import OwnModel, value_of, with_own_model
from bitfactor.study import Choices, Grid, Value, read_study
from bitfactor.study.grid import text_of
from bitfactor.study.run import Ablation, StudyPlan, StudyTrial, run_study, try_study
from bitfactor.study.statistics import axis_name
from bitfactor.training import Recipe

LATENTS = ("none", "svd", "tucker", "holistic")
SCALES = ("analytic", "learned")


@checked
def ablate(
    recipe: str | Recipe,
    *,
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    model: str | None = None,
    latent: Sequence[str] = LATENTS,
    scale: Sequence[str] = SCALES,
    seeds: int = 2,
    learning_rate: Sequence[float] = (),
    vary: Mapping[str, Sequence[object]] | None = None,
    rates_from: str | os.PathLike[str] | None = None,
    real: bool = False,
    jobs: int | None = None,
    devices: Sequence[str] = (),
    halving: bool = False,
    keep_checkpoints: bool = False,
    dry_run: bool = False,
    progress: bool = True,
    **options: object,
) -> Ablation | StudyTrial:
    """Train a recipe for every combination of latent, scale, seed and what else varies.

    All options of `train` hold for each training. What is finished is not repeated: the same call resumes an
    interrupted study. With more values or seeds it adds to it, and several at once share its trainings.

    Parameters
    ----------
    out
        Directory of the study.
    data
        Directory of the data, for recipes that need one.
    model
        A network of your own in place of the recipe's, FILE.py:NAME.
    latent
        Latents to compare. One may be a choice by layer, quoted: "layer4.*=window *=tucker".
    scale
        Scales to compare, likewise.
    seeds
        Trainings of each combination: seeds 0, 1, ...
    learning_rate
        Learning rates to compare; the recipe's own if left out.
    vary
        Another option of the recipe and the values to compare, in Python a dict. As words: the flag without
        its dashes, then one word each, or quoted; `on` and `off` for a flag without a value.
    rates_from
        Another study, a search: train each row at the setting that was best for it there, of all that was
        varied beside latent and scale.
    real
        Train the full-precision baseline too, once for each seed.
    jobs
        Trainings at a time on the CPU; as many as there are cores, with one thread each, if left out.
    devices
        Where to train, a training at a time on each: cuda:0 cuda:1; all GPUs if left out, or else the CPU. A
        GPU that is named twice trains two, cuda:0+cuda:1 is one training on both.
    halving
        In a search on validation images: give up trainings after 1/9 and 1/3 of the epochs. The best third of
        each row and seed goes on. Without it, the same call trains those to their end too.
    keep_checkpoints
        Keep the checkpoints of finished trainings; the exported networks are kept in any case.
    dry_run
        Time a few steps of each row here, say how long the study would take, and write nothing.
    options
        Of the recipe, the same in all trainings.

    Raises
    ------
    InputError
        If an argument or option is not one of these, or `out` holds something else.

    Example
    -------
    >>> if __name__ == "__main__":  # in a script, which the processes that train read too
    ...     print(bitfactor.ablate("digits", out="runs/t", latent=["none", "tucker"], epochs=3))
    """
    base = recipe_named(recipe) if isinstance(recipe, str) else expect_registered(recipe)
    if model is not None:
        base = with_own_model(base, asdict(OwnModel.at(model)))
    expect_apart(options, [*(vary or {}), *(["learning_rate"] if learning_rate else [])])
    for name, values in (vary or {}).items():
        several = isinstance(values, Iterable) and not isinstance(values, str)
        fix = f"pass vary={{{name!r}: [{values!r}]}}"
        expect_that(several, f"vary[{name!r}]", expected="a list of values", found=values, fix=fix)
    varied = {name: [as_tuples(value) for value in values] for name, values in (vary or {}).items()}
    grid = grid_of(latent, scale, learning_rate, varied, seeds=seeds, real=real, jobs=jobs)
    fixed = {name: as_tuples(value) for name, value in sorted(options.items())}
    study = StudyPlan(
        base,
        fixed,
        grid,
        choices_of(None if rates_from is None else Path(rates_from), grid, fixed),
        None if data is None else Path(data),
        jobs,
        devices,
        halving,
        keep_checkpoints,
        progress,
    )
    return try_study(study, Path(out)) if dry_run else run_study(study, Path(out))


def grid_of(
    latent: Sequence[str],
    scale: Sequence[str],
    learning_rate: Sequence[float],
    vary: Mapping[str, Sequence[Value]],
    *,
    seeds: int,
    real: bool,
    jobs: int | None = None,
) -> Grid:
    """Return the cells to train."""
    axes: dict[str, Sequence[Any]] = {"latent": latent, "scale": scale}
    if learning_rate:
        axes["learning_rate"] = learning_rate
    for name in axes.keys() & vary.keys():
        flag = f"--{name.replace('_', '-')}"
        raise InputError("--vary", expected=f"no {name}", found=f"{name}, beside {flag}", fix=f"use {flag}")
    axes |= vary
    axes = {
        name: [value_of(as_plain(name, value)) if name in BY_LAYER else value for value in values]
        for name, values in axes.items()
    }
    for name, values in axes.items():
        if not values or len(set(values)) < len(values):
            found = text_of(tuple(values)) or "none"
            raise InputError(
                f"values of {name}", expected="one or more, each once", found=found, fix="change them"
            )
    for name, number in {"seeds": seeds, "jobs": jobs}.items():
        expect_that(number is None or number >= 1, name, expected="1 or more", found=number)
    return Grid(axes, range(seeds), real)


_OURS = frozenset(("data", "out", "seed", "real", "model", "json", "dry_run", "from", "device", "other_data"))


def expect_apart(fixed: Collection[str], varied: Collection[str]) -> None:
    """Raise InputError where an option is fixed and varies, or is the study's own."""
    for name in sorted(({*varied} & {*fixed}) | ({*varied, *fixed} & _OURS)):
        raise InputError(
            f"--{name.replace('_', '-')}",
            expected="a flag that is the same in all trainings",
            found="one that varies, is the study's own, or of one training alone",
            fix=f"see `bitfactor ablate --help` on {'--seeds' if name == 'seed' else '--vary'}",
        )


def choices_of(path: Path | None, grid: Grid, fixed: Collection[str]) -> Choices | None:
    """Return what another study chose for each row of this one, whose options `fixed` are given."""
    if path is None:
        return None
    choices = Choices.best_of(read_study(path))
    for name in choices.searched:
        if name in grid.axes or name in fixed:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                "--rates-from",
                expected=f"no {axis_name(name)} beside that of the other study",
                found=text_of(tuple(grid.axes[name])) if name in grid.axes else flag,
                fix=f"leave out {flag}, or --rates-from",
            )
    for row in dict.fromkeys(cell.row for cell in grid):
        if str(row) not in choices.chosen:
            raise InputError(
                "--rates-from",
                expected=f"a study with the row {row}",
                found=f"one of {', '.join(choices.chosen)}",
                fix="add the row to that study",
            )
    return choices
