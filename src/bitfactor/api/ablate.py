"""A study: a recipe trained for every combination of what varies."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console

from bitfactor.api.ablate_cell import train_cell
from bitfactor.checks import checked, expect_one_of
from bitfactor.convert.binarization import ScaleName
from bitfactor.decompositions import JOINT, LAYERWISE
from bitfactor.errors import InputError
from bitfactor.own_file import files_run
from bitfactor.recipes import recipe_named
from bitfactor.recipes.options import with_options
from bitfactor.recipes.own import OwnModel, with_own_model
from bitfactor.result import Result, text_table
from bitfactor.study import Cell, Grid, Job, Rates, StudyDirectory, Value, read_study, run_jobs
from bitfactor.study.pruning import Halving
from bitfactor.study.schedule import Progress
from bitfactor.training import Recipe
from bitfactor.training.processes import expect_devices, noting_sigterm

LATENTS = ("none", "svd", "tucker", "holistic")
SCALES: tuple[ScaleName, ...] = ("analytic", "learned")


@dataclass(frozen=True)
class Ablation(Result):
    """What came out of the finished trainings, and the names of those that failed; prints as a table.

    `given_up` are those that `halving` ended. `interrupted` says that SIGTERM ended it before all were
    trained: the same call resumes.
    """

    out: Path
    trainings: tuple[Mapping[str, Any], ...]
    failed: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    interrupted: bool = False

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for training in self.trainings for name in training["axes"]))
        rows: dict[tuple[str, ...], list[float]] = {}
        for one in self.trainings:
            row = tuple(str(one["axes"].get(name, "real" if one["real"] else "")) for name in names)
            rows.setdefault(row, []).append(one["metrics"][one["headline"]])
        if not rows:
            return "no training has finished"
        head = [*(name.replace("_", " ") for name in names), self.trainings[0]["headline"], "over seeds"]
        cells = [[*row, f"{mean(values):.2%}", _spread(values)] for row, values in rows.items()]
        return text_table(head, cells, right=frozenset((len(names), len(names) + 1)))


def _spread(values: Sequence[float]) -> str:
    return f"± {stdev(values):.2%} ({len(values)})" if len(values) > 1 else "(1)"


@dataclass(frozen=True)
class Study:
    """What `run_study` trains: `recipe_of` gives the recipe of a cell; `fixed` are flags that all share."""

    recipe: Recipe
    recipe_of: Callable[[Cell], Recipe]
    fixed: Mapping[str, str | bool]
    grid: Grid
    rates: Rates | None = None
    data: Path | None = None
    jobs: int | None = None
    devices: Sequence[str] = ()
    halving: bool = False
    keep_checkpoints: bool = False
    progress: bool = True

    @property
    def arguments(self) -> Mapping[str, str | bool]:
        """The flags that all share, with the network of the user's own if there is one."""
        own = self.recipe.model
        return {**self.fixed, "model": own.spec} if isinstance(own, OwnModel) else self.fixed


@checked
def ablate(
    recipe: str | Recipe,
    *,
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    model: str | None = None,
    latent: Sequence[str] = LATENTS,
    scale: Sequence[ScaleName] = SCALES,
    seeds: int = 2,
    learning_rate: Sequence[float] = (),
    vary: Mapping[str, Sequence[object]] | None = None,
    rates_from: str | os.PathLike[str] | None = None,
    real: bool = False,
    jobs: int | None = None,
    devices: Sequence[str] = (),
    halving: bool = False,
    keep_checkpoints: bool = False,
    progress: bool = True,
    **options: object,
) -> Ablation:
    """Train a recipe for every combination of latent, scale, seed and what else varies.

    What is finished is not repeated: the same call resumes where an interrupted one stopped, and with more
    values or seeds adds to the study.

    Parameters
    ----------
    out
        Directory of the study.
    data
        Directory of the data, for recipes that need one.
    model
        A network of your own in place of the recipe's, FILE.py:NAME.
    latent, scale, learning_rate
        What is compared; without a learning rate, the recipe's own.
    seeds
        Trainings of each combination: seeds 0, 1, ...
    vary
        Other options of the recipe, each with the values to compare.
    rates_from
        Another study, over learning rates: train each row at the rate that was best for it there.
    real
        Train the full-precision baseline too, once for each seed.
    jobs
        Trainings at a time on the CPU; as many as there are cores, with one thread each, if left out.
    devices
        Where to train, a training at a time on each: cuda:0, cuda:1, ...; all GPUs if left out, or else
        the CPU. "cuda:0+cuda:1" is one training on both.
    halving
        In a search on validation images: give up what is not among the best third of its row and seed after
        1/9 and 1/3 of the epochs. Without it, the same call trains those to their end too.
    options
        Of the recipe, the same in all trainings.

    Raises
    ------
    InputError
        If an argument or option is not one of these, or `out` holds something else.

    Example
    -------
    >>> print(bitfactor.ablate("digits", out="runs/t", latent=["none", "tucker"], epochs=3))
    """
    base = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if model is not None:
        base = with_own_model(base, asdict(OwnModel.at(model)))
    typed = {name: {_word(value): value for value in values} for name, values in (vary or {}).items()}
    words = {name: list(values) for name, values in typed.items()}
    grid = grid_of(latent, scale, learning_rate, words, seeds=seeds, real=real, jobs=jobs)
    fixed = {name.replace("_", "-"): _flag_value(value) for name, value in sorted(options.items())}
    expect_apart(fixed, grid)

    def recipe_of(cell: Cell) -> Recipe:
        axes = {
            name: typed[name][str(value)] if name in typed else value for name, value in cell.axes.items()
        }
        rate = {} if cell.rate is None else {"learning_rate": cell.rate}
        meant = {name: value for name, value in options.items() if name not in cell.refused}
        fixed = {**meant, "seed": cell.seed, "real": cell.real or base.real}
        return with_options(base, {**fixed, **axes, **rate})

    study = Study(
        base,
        recipe_of,
        fixed,
        grid,
        rates_of(None if rates_from is None else Path(rates_from), grid),
        None if data is None else Path(data),
        jobs,
        devices,
        halving,
        keep_checkpoints,
        progress,
    )
    return run_study(study, Path(out))


def _word(value: object) -> str:
    """Return a value as the command line has it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(_word, value)) if isinstance(value, list | tuple) else str(value)


def _flag_value(value: object) -> str | bool:
    return value if isinstance(value, bool) else _word(value)


def grid_of(
    latent: Sequence[str],
    scale: Sequence[str],
    learning_rate: Sequence[float],
    vary: Mapping[str, Sequence[str]],
    *,
    seeds: int,
    real: bool,
    jobs: int | None = None,
) -> Grid:
    """Return the cells to train.

    Raises
    ------
    InputError
        If a value is unknown, is there twice, or none is there.
    """
    for name in latent:
        expect_one_of("latent", name, [*LAYERWISE, *JOINT])
    axes: dict[str, Sequence[Value]] = {"latent": list(latent), "scale": list(scale)}
    if learning_rate:
        axes["learning_rate"] = list(learning_rate)
    for name in axes.keys() & vary.keys():
        flag = f"--{name.replace('_', '-')}"
        raise InputError("--vary", expected=f"no {name}", found=f"{name}, beside {flag}", fix=f"use {flag}")
    axes |= {name: list(values) for name, values in vary.items()}
    for name, values in axes.items():
        if not values or len(set(values)) < len(values):
            found = " ".join(map(str, values)) or "none"
            raise InputError(
                f"values of {name}", expected="one or more, each once", found=found, fix="change them"
            )
    for name, number in {"seeds": seeds, "jobs": jobs}.items():
        if number is not None and number < 1:
            raise InputError(name, expected="1 or more", found=str(number), fix="change it")
    return Grid(axes, range(seeds), real)


_OURS = frozenset(("data", "out", "seed", "real", "model", "json", "dry-run", "from", "device", "other-data"))


def expect_apart(fixed: Iterable[str], grid: Grid) -> None:
    """Raise InputError where an option is fixed and varies, or is the study's own."""
    names, varied = (
        {name.removeprefix("no-") for name in fixed},
        {name.replace("_", "-") for name in grid.axes},
    )
    for name in sorted((varied & names) | ((varied | names) & _OURS)):
        raise InputError(
            f"--{name}",
            expected="a flag that is the same in all trainings",
            found="one that varies, is the study's own, or of one training alone",
            fix=f"see `bitfactor ablate --help` on {'--seeds' if name == 'seed' else '--vary'}",
        )


def rates_of(path: Path | None, grid: Grid) -> Rates | None:
    """Return the learning rates that another study chose for each row of this one."""
    if path is None:
        return None
    if "learning_rate" in grid.axes:
        raise InputError(
            "--rates-from",
            expected="no learning rates beside those of the other study",
            found=" ".join(map(str, grid.axes["learning_rate"])),
            fix="leave out --learning-rate, or --rates-from",
        )
    rates = Rates.best_of(read_study(path))
    for row in dict.fromkeys(cell.row for cell in grid):
        if str(row) not in rates.chosen:
            raise InputError(
                "--rates-from",
                expected=f"a study with the row {row}",
                found=f"one of {', '.join(rates.chosen)}",
                fix="add the row to that study",
            )
    return rates


def run_study(study: Study, out: Path) -> Ablation:
    """Train what is not trained yet."""
    jobs, devices = begin_study(study, out)
    interrupted = _run(jobs, study, devices)
    done = [(job.cell, job.directory.outcome()) for job in jobs if job.state == "finished"]
    trainings = tuple(
        {"name": cell.name, "axes": dict(cell.axes), "real": cell.real, "seed": cell.seed, **asdict(outcome)}
        for cell, outcome in done
    )
    failed, given_up = (
        tuple(job.cell.name for job in jobs if job.state == state) for state in ("failed", "given up")
    )
    return Ablation(out, trainings, failed, given_up, interrupted)


def begin_study(study: Study, out: Path) -> tuple[list[Job], Sequence[str]]:
    """Return what is to be done and the devices for it.

    Nothing is written before all that was asked for has been checked.
    """
    directory, rates = StudyDirectory(out), study.rates
    devices, threads = _parts(study.jobs, study.devices)
    cells = [replace(cell, rate=rates.chosen[str(cell.row)]) if rates else cell for cell in study.grid]
    for name in [*study.arguments, *study.grid.axes]:
        if all(_option(name) in cell.refused for cell in cells):
            rows = ", ".join(dict.fromkeys(str(cell.row) for cell in cells))
            raise InputError(
                f"--{name.replace('_', '-')}",
                expected="a row that it changes something for",
                found=rows,
                fix="leave it out",
            )
    for cell in cells if study.halving else ():
        _expect_search(study.recipe_of(cell), rates)
    if isinstance(study.recipe.model, OwnModel):
        directory.expect_same_file(study.recipe.model.sha256)
    jobs = [_job(directory, study, cell, threads) for cell in cells]
    directory.start(study.recipe.name, study.arguments, study.grid, rates)
    return jobs, devices


def _expect_search(recipe: Recipe, rates: Rates | None) -> None:
    plan, holdout = recipe.optimization, getattr(recipe.data, "holdout", "validation")
    if rates or holdout != "validation":
        found = "rates of a search that is over" if rates else f"--holdout {holdout}"
    elif plan.eval_interval * 3 > plan.epochs:
        found = f"--eval-interval {plan.eval_interval} in {plan.epochs} epochs"
    else:
        return
    raise InputError(
        "--halving",
        expected="a search on validation images, evaluated three times or more in each training",
        found=found,
        fix="leave it out, or change --holdout, --eval-interval",
    )


def _parts(jobs: int | None, devices: Sequence[str]) -> tuple[Sequence[str], int]:
    """Return the devices, each as often as it trains at a time, and the threads of each process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if devices and jobs is not None:
        raise InputError("jobs", expected="none beside devices", found=str(jobs), fix="name one of them")
    joined = [len(expect_devices(device)) for device in devices]
    usual = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"] * cores
    asked = list(devices) or (usual if jobs is None else [usual[i % len(usual)] for i in range(jobs)])
    return asked, max(1, cores // (sum(joined) or len(asked)))


def _job(study: StudyDirectory, asked: Study, cell: Cell, threads: int) -> Job:
    """Return what is to be done about a cell."""
    directory, chosen = study.cell(cell), asked.recipe_of(cell)
    off: dict[str, Any] = dict.fromkeys(cell.refused & {"merge_epoch", "diagnose", "real_weight_epochs"}, 0)
    chosen = replace(chosen, optimization=replace(chosen.optimization, **off))
    kept = {name: value for name, value in asked.arguments.items() if _option(name) not in cell.refused}
    fixed = [word for name, value in kept.items() for word in _flag(name, value)]
    data = ["--data", "DIR"] if asked.data else []
    flags = cell.flags
    if asked.recipe.real and not cell.real:
        kept_axes = {name: value for name, value in cell.axes.items() if name not in ("latent", "scale")}
        flags = replace(cell, axes=kept_axes, real=True).flags
    return Job(
        cell=cell,
        directory=directory,
        command=["bitfactor", "train", asked.recipe.name, *fixed, *flags, *data, "--out", cell.name],
        call=partial(train_cell, directory.path, chosen.settings(), files_run(), asked.data, threads),
        epochs=chosen.optimization.epochs,
        state="finished" if directory.finished else "waiting",
        halving=asked.halving,
    )


def _option(flag: str) -> str:
    return flag.removeprefix("no-").replace("-", "_")


def _flag(name: str, value: str | bool) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *value.split()]


def _run(jobs: Sequence[Job], study: Study, devices: Sequence[str]) -> bool:
    """Train; returns whether it was told to stop."""
    console = Console(stderr=True, highlight=False, quiet=not study.progress)

    def tidy(job: Job) -> None:
        if job.state == "finished" and not study.keep_checkpoints:
            job.directory.discard_checkpoints()

    for job in jobs:
        tidy(job)
    headline = study.recipe.task.headline
    halving = Halving(headline) if study.halving else None
    with noting_sigterm() as request, Progress(jobs, headline, len(devices), console) as progress:

        def notice(job: Job) -> None:
            tidy(job)
            progress.notice(job)

        def look() -> bool:
            for job in jobs:
                if halving and halving.gives_up(job) and job.state == "running":
                    job.give_up()
            progress.refresh()
            return not request.made

        run_jobs(jobs, devices, notice, look)
    return request.made
