"""`bitfactor ablate RECIPE --out DIR`."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro

from bitfactor.cli import train
from bitfactor.cli.ablate_cell import train_cell
from bitfactor.cli.ablate_outcome import print_outcomes
from bitfactor.cli.ablate_progress import Progress
from bitfactor.cli.arguments import parse_known
from bitfactor.cli.output import status
from bitfactor.cli.recipe_argument import parse_recipe, split_recipe
from bitfactor.convert.binarization import ScaleName
from bitfactor.errors import InputError
from bitfactor.study import Cell, Grid, Job, Rates, StudyDirectory, Value, run_jobs
from bitfactor.training import Recipe
from bitfactor.training.interruption import noting_sigterm

_TERMINATED = 143
_OURS = frozenset(("data", "out", "seed", "real", "json", "dry-run"))


@dataclass(frozen=True)
class Arguments:
    """Train a recipe for every combination of latent, scale, seed and what else varies.

    All flags of `bitfactor train RECIPE` hold for each training. What is finished is not repeated: the same
    command goes on where an interrupted one stopped, and with more values or seeds adds to the study.
    """

    out: Path
    """Directory of the study."""
    data: Path | None = None
    """Directory of the data, for recipes that need one."""
    latent: tuple[str, ...] = ("none", "svd", "tucker", "holistic")
    """Latents to compare."""
    scale: tuple[ScaleName, ...] = ("analytic", "learned")
    """Scales to compare."""
    seeds: int = 2
    """Trainings of each combination: seeds 0, 1, ..."""
    learning_rate: tuple[float, ...] = ()
    """Learning rates to compare; the recipe's own if left out."""
    rates_from: Path | None = None
    """Another study, over --learning-rate: train each row at the rate that was best for it there."""
    vary: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FLAG VALUE...")
    ] = ()
    """Another flag of the recipe, without its dashes, and the values to compare: one word each, or quoted;
    `on` and `off` for a flag without a value."""
    real: bool = False
    """Train the float twin too, once for each seed."""
    jobs: int | None = None
    """Trainings at a time; with a GPU 1, else as many as there are cores, with one thread each."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of finished trainings; the exported networks are kept in any case."""
    json: bool = False
    """Print the outcomes as JSON."""


def main(arguments: Sequence[str]) -> int:
    """Train what is not trained yet, showing a table, and print the outcomes; 1 if a training failed."""
    recipe, rest = split_recipe("ablate", arguments)
    options, others = parse_known(Arguments, f"ablate {recipe.name}", rest)
    fixed, grid = _fixed(others), _grid(options)
    _expect_apart(fixed, grid)
    rates = _rates(options.rates_from, grid)
    study = StudyDirectory(options.out)
    at_once, threads = _shares(options.jobs)
    cells = [replace(cell, rate=rates.chosen[cell.row]) if rates else cell for cell in grid]
    jobs = [_job(study, recipe, cell, others, options, threads) for cell in cells]
    study.start(recipe.name, fixed, grid, asdict(rates) if rates else None)
    failed = _run(jobs, recipe, options, at_once)
    print_outcomes(jobs, as_json=options.json)
    return 1 if failed else 0


def _grid(options: Arguments) -> Grid:
    axes: dict[str, Sequence[Value]] = {"latent": options.latent, "scale": options.scale}
    if options.learning_rate:
        axes["learning_rate"] = options.learning_rate
    for words in options.vary:
        flag, *others = words or ("vary",)
        axes[flag.lstrip("-").replace("-", "_")] = others
    for name, values in axes.items():
        if not values or len(set(values)) < len(values):
            raise InputError(
                f"values of {name}",
                expected="one or more, each once",
                found=" ".join(map(str, values)) or "none",
                fix="change them",
            )
    for flag, number in {"--seeds": options.seeds, "--jobs": options.jobs}.items():
        if number is not None and number < 1:
            raise InputError(flag, expected="1 or more", found=str(number), fix="change it")
    return Grid(axes, range(options.seeds), options.real)


def _rates(path: Path | None, grid: Grid) -> Rates | None:
    if path is None:
        return None
    if "learning_rate" in grid.axes:
        raise InputError(
            "--rates-from",
            expected="no learning rates beside those of the other study",
            found=" ".join(map(str, grid.axes["learning_rate"])),
            fix="leave out --learning-rate, or --rates-from",
        )
    rates = Rates.best_of(path)
    for row in dict.fromkeys(cell.row for cell in grid):
        if row not in rates.chosen:
            raise InputError(
                "--rates-from",
                expected=f"a study with the row {row}",
                found=f"one of {', '.join(rates.chosen)}",
                fix="add the row to that study",
            )
    return rates


def _fixed(flags: Sequence[str]) -> dict[str, str | bool]:
    """Return flags with their values, those without as True."""
    fixed: dict[str, list[str]] = {}
    values: list[str] = []
    for word in flags:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            values = fixed.setdefault(name.replace("_", "-"), [])
            word = value if equals else ""
        values += [word] if word else []
    return {name: " ".join(words) or True for name, words in sorted(fixed.items())}


def _expect_apart(fixed: Mapping[str, str | bool], grid: Grid) -> None:
    varied = {name.replace("_", "-") for name in grid.axes}
    for name in sorted((varied & fixed.keys()) | ((varied | fixed.keys()) & _OURS)):
        raise InputError(
            f"--{name}",
            expected="a flag that is the same in all trainings",
            found="one that varies or is the study's own",
            fix=f"see `bitfactor ablate --help` on {'--seeds' if name == 'seed' else '--vary'}",
        )


def _shares(jobs: int | None) -> tuple[int, int]:
    """Return how many trainings run at a time, and the threads of each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = jobs or (1 if torch.cuda.is_available() else cores)
    return at_once, max(1, cores // at_once)


def _job(
    study: StudyDirectory,
    recipe: Recipe,
    cell: Cell,
    others: Sequence[str],
    options: Arguments,
    threads: int,
) -> Job:
    """Return what is to be done about a cell; its flags are read as the training will read them."""
    directory = study.cell(cell)
    flags = [recipe.name, *others, *cell.flags]
    out = ["--out", str(directory.path)]
    chosen, _ = parse_recipe("train", train.Arguments(tyro.MISSING), [*flags, *out])
    data = ["--data", str(options.data)] if options.data else []
    return Job(
        cell=cell,
        directory=directory,
        command=["bitfactor", "train", *flags, *(["--data", "DIR"] if data else []), "--out", cell.name],
        call=partial(train_cell, directory.path, [*flags, *data, *out], threads),
        epochs=chosen.optimization.epochs,
        state="finished" if directory.finished else "waiting",
    )


def _run(jobs: Sequence[Job], recipe: Recipe, options: Arguments, at_once: int) -> bool:
    """Train; returns whether something failed."""

    def tidy(job: Job) -> None:
        if job.state == "finished" and not options.keep_checkpoints:
            job.directory.discard_checkpoints()

    for job in jobs:
        tidy(job)
    with noting_sigterm() as request, Progress(jobs, recipe.task.headline, at_once, status) as progress:

        def notice(job: Job) -> None:
            tidy(job)
            progress.notice(job)

        def look() -> bool:
            progress.refresh()
            return not request.made

        run_jobs(jobs, at_once, notice, look)
    if request.made:
        sys.exit(_TERMINATED)
    return any(job.state == "failed" for job in jobs)
