"""A study as it runs: what is to be trained, each in a process of its own, and what came out."""

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from heapq import heapreplace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console

from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run, run_file
from bitfactor.common.result import Result, text_table
from bitfactor.recipes import recipe_of_settings
from bitfactor.recipes.own import OwnModel, with_options
from bitfactor.recipes.runs import teacher_of
from bitfactor.study import Cell, CellDirectory, Choices, Grid, Job, StudyDirectory, Value, finish, run_jobs
from bitfactor.study.grid import setting_of, text_of, words_of
from bitfactor.study.jobs import Halving, Progress, expect_main
from bitfactor.study.statistics import row_name, setting_name
from bitfactor.training import DivergedError, Recipe, TerminatedError, Trial, dry_run, train
from bitfactor.training.estimate import between, duration
from bitfactor.training.processes import expect_devices, noting_signals, run_joined
from bitfactor.training.recipe import prepare
from bitfactor.training.step import Stepper

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


def train_cell(
    path: Path,
    settings: Mapping[str, Any],
    imports: Sequence[str],
    data: Path | None,
    threads: int,
    device: str,
) -> int:
    """Run the files of `imports`, train in `path` on `device`, or resume, and write down what came out.

    "cuda:0+cuda:1" are two processes of one training. Returns the status of this process.
    """
    _prepare(imports, threads)
    cell, devices = CellDirectory(path), expect_devices(device)
    with _alone_in(path):
        if cell.finished:
            return 0
        resumed = cell.checkpoint.exists()
        status: int | None
        if len(devices) == 1:
            status = _train(path, settings, data, device)
        else:
            kind = devices[0].partition(":")[0]
            status = run_joined(devices, _part, imports, threads, path, settings, data, kind)
        if status == 0:
            finish(cell, resumed=resumed)
        return _TERMINATED if status is None else status


def _prepare(imports: Sequence[str], threads: int) -> None:
    torch.set_num_threads(threads)
    for file in imports:
        run_file(file)


def _part(imports: Sequence[str], threads: int, *training: Any) -> int:
    """Train in a process of its own, which knows nothing of the files of `imports` yet."""
    _prepare(imports, threads)
    return _train(*training)


def _train(path: Path, settings: Mapping[str, Any], data: Path | None, device: str) -> int:
    try:
        console = Console(stderr=True, highlight=False)
        recipe = recipe_of_settings(dict(settings), path)
        others = CellDirectory(path).others()
        teacher = teacher_of(recipe)
        train(recipe, path, console, data=data, teacher=teacher, device=device, beside=others)
    except InputError as error:
        if isinstance(error, DivergedError):
            CellDirectory(path).give_up(diverged=True)
        print(f"bitfactor: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except TerminatedError as stop:
        print(stop, file=sys.stderr)
        return _TERMINATED
    return 0


@contextmanager
def _alone_in(path: Path) -> Iterator[None]:
    """Wait for a process that still trains here, the last one of a study that was killed, say."""
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


@dataclass(frozen=True)
class Ablation(Result):
    """What came out of the finished trainings, and the names of those that failed; prints as a table.

    `given_up` are those that `halving` ended or whose loss was no number under it. `interrupted` says that
    SIGTERM ended it before all were trained: the same call resumes.
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
            row = tuple(text_of(one["axes"].get(name, "real" if one["real"] else "")) for name in names)
            rows.setdefault(row, []).append(one["metrics"][one["headline"]])
        if not rows:
            return "no training has finished"
        head = [*(name.replace("_", " ") for name in names), self.trainings[0]["headline"], "over seeds"]
        cells = [[*row, f"{mean(values):.2%}", _spread(values)] for row, values in rows.items()]
        return text_table(head, cells, right=(len(names), len(names) + 1))


def _spread(values: Sequence[float]) -> str:
    return f"± {stdev(values):.2%} ({len(values)})" if len(values) > 1 else "(1)"


@dataclass(frozen=True)
class StudyTrial(Result):
    """What the trainings that a study has left would be like, `at_once` of them at a time.

    `rows` has one of each row and setting; learning rates and seeds take the same time. `trainings` are the
    rows of those that are left, in their order.
    """

    rows: Mapping[str, Trial]
    trainings: Sequence[str]
    at_once: int

    @property
    def hours(self) -> float:
        """How long all of them would take at most, if those at a time do not slow each other."""
        return self._longest({name: one.hours for name, one in self.rows.items()})

    @property
    def hours_range(self) -> tuple[float, float]:
        """The same, by the fastest and by the slowest steps of the trials."""
        ends = ({name: one.hours_range[end] for name, one in self.rows.items()} for end in (0, 1))
        fastest, slowest = map(self._longest, ends)
        return fastest, slowest

    def _longest(self, hours: Mapping[str, float]) -> float:
        places = [0.0] * self.at_once
        for name in self.trainings:
            heapreplace(places, places[0] + hours[name])
        return max(places)

    def to_dict(self) -> dict[str, Any]:
        rows = {
            name: {"device": one.device, "steps": one.steps, "epochs": one.epochs, "seconds": one.seconds}
            | {"hours": one.hours, "trainings": self.trainings.count(name)}
            for name, one in self.rows.items()
        }
        hours = {"hours": self.hours, "hours_range": list(self.hours_range)}
        return {"rows": rows, "at_once": self.at_once, **hours}

    def __str__(self) -> str:
        if not self.trainings:
            return "no training is left"
        head = ["row", "trainings", "steps each", "s a step", "each"]
        cells = [
            [
                name,
                str(self.trainings.count(name)),
                f"{one.total:,}",
                f"{one.seconds:.3f}",
                duration(one.hours),
            ]
            for name, one in self.rows.items()
        ]
        device = next(iter(self.rows.values())).device
        return (
            f"{text_table(head, cells, right=range(1, 5))}\n\n"
            f"{len(self.trainings)} trainings on {device}, {self.at_once} at a time: at most "
            f"{duration(self.hours)} if they do not slow each other, {between(self.hours_range)} by the "
            "fastest and the slowest of the steps; nothing was written"
        )


@dataclass(frozen=True)
class StudyPlan:
    """What `run_study` trains: the cells of a grid, with the options `fixed` in all of them."""

    recipe: Recipe
    fixed: Mapping[str, Value]
    grid: Grid
    choices: Choices | None = None
    data: Path | None = None
    jobs: int | None = None
    devices: Sequence[str] = ()
    halving: bool = False
    keep_checkpoints: bool = False
    progress: bool = True

    @property
    def arguments(self) -> Mapping[str, Value]:
        """The options that all share, with the network of the user's own if there is one."""
        own = self.recipe.model
        return {**self.fixed, "model": own.spec} if isinstance(own, OwnModel) else self.fixed

    def recipe_of(self, cell: Cell) -> Recipe:
        """Return the recipe of a cell, without what a training like it refuses."""
        off: dict[str, Any] = dict.fromkeys(
            cell.refused & {"merge_epoch", "diagnose", "real_weight_epochs"}, 0
        )
        off |= dict.fromkeys(cell.refused & {"real_weight_rate", "real_weight_decay"})
        meant = {name: value for name, value in self.fixed.items() if name not in cell.refused}
        row = {"seed": cell.seed, "real": cell.real or self.recipe.real}
        return with_options(self.recipe, {**off, **meant, **row, **cell.axes, **cell.chosen})

    def command_of(self, cell: Cell) -> list[str]:
        """Return what a user would type to train a cell."""
        kept = {name: value for name, value in self.arguments.items() if name not in cell.refused}
        if self.recipe.real and not cell.real:
            kept_axes = {name: value for name, value in cell.axes.items() if name not in ("latent", "scale")}
            cell = replace(cell, axes=kept_axes, real=True)
        fixed = [word for name, value in kept.items() for word in words_of(name, value)]
        data = ["--data", "DIR"] if self.data else []
        own = self.recipe.model.spec.rpartition(":")[0] if isinstance(self.recipe.model, OwnModel) else ""
        files = [Path(file) for file in files_run() if not own or Path(file) != Path(own).resolve()]
        imports = [word for file in files for word in ("--import", str(_from_here(file)))]
        return ["bitfactor", *imports, "train", self.recipe.name, *fixed, *cell.flags, *data]


def _from_here(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def run_study(study: StudyPlan, out: Path) -> Ablation:
    """Train what is not trained yet."""
    return run_studies({out: study})[0]


def run_studies(studies: Mapping[Path, StudyPlan]) -> list[Ablation]:
    """Train what is not trained yet of studies that differ in recipe and options alone, in one progress."""
    begun = {out: begin_study(study, out) for out, study in studies.items()}
    jobs = [job for found, _ in begun.values() for job in found]
    interrupted = _run(jobs, next(iter(studies.values())), next(iter(begun.values()))[1])
    return [_ablation(out, found, interrupted) for out, (found, _) in begun.items()]


def _ablation(out: Path, jobs: Sequence[Job], interrupted: bool) -> Ablation:
    done = [(job.cell, job.directory.outcome()) for job in jobs if job.state == "finished"]
    trainings = tuple(
        {"name": cell.name, "axes": dict(cell.axes), "real": cell.real, "seed": cell.seed, **asdict(outcome)}
        for cell, outcome in done
    )
    failed, given_up = (
        tuple(job.cell.name for job in jobs if job.state == state) for state in ("failed", "given up")
    )
    return Ablation(out, trainings, failed, given_up, interrupted)


def try_study(study: StudyPlan, out: Path) -> StudyTrial:
    """Time a few steps of one training of each row and setting on the first device; nothing is written."""
    jobs, devices, threads = _planned(study, out)
    for device in devices:
        expected = "one for each training, to time a step"
        expect_that("+" not in device, "--devices", expected=expected, found=device)
    axes = {name: values for name, values in study.grid.axes.items() if name != "learning_rate"}
    console = Console(stderr=True, highlight=False, quiet=not study.progress)
    rows, trainings, usual = dict[str, Trial](), list[str](), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for job in jobs:
            if job.ended:
                continue
            setting = setting_name(setting_of(job.cell, axes))
            name = ", ".join(filter(None, (row_name(job.cell.row), setting)))
            trainings.append(name)
            if name not in rows:
                console.print(f"timing {name}")
                torch.compiler.reset()
                recipe = study.recipe_of(job.cell)
                teacher = teacher_of(recipe)
                rows[name] = dry_run(recipe, data=study.data, teacher=teacher, device=devices[0])
    finally:
        torch.set_num_threads(usual)
    return StudyTrial(rows, trainings, len(devices))


def expect_begins(study: StudyPlan) -> None:
    """Raise the InputError with which the first training of a study could not begin."""
    recipe = study.recipe_of(next(iter(study.grid)))
    Stepper(prepare(recipe, study.data), teacher_of(recipe), head_images=0)


def begin_study(study: StudyPlan, out: Path) -> tuple[list[Job], Sequence[str]]:
    """Return what is to be done and the devices for it.

    Nothing is written before all that was asked for has been checked.
    """
    jobs, devices, _ = _planned(study, out)
    StudyDirectory(out).start(study.recipe.name, study.arguments, study.grid, study.choices)
    return jobs, devices


def _planned(study: StudyPlan, out: Path) -> tuple[list[Job], Sequence[str], int]:
    """Return what is to be done, the devices for it and the threads of each process; writes nothing."""
    expect_main()
    directory, choices = StudyDirectory(out), study.choices
    devices, threads = _parts(study.jobs, study.devices)
    cells = [replace(cell, chosen=choices.chosen[str(cell.row)] if choices else {}) for cell in study.grid]
    for name in [*study.arguments, *study.grid.axes]:
        if all(name in _refused(study, cell) for cell in cells):
            rows = ", ".join(dict.fromkeys(str(cell.row) for cell in cells))
            raise InputError(
                f"--{name.replace('_', '-')}",
                expected="a row that it changes something for",
                found=rows,
                fix="leave it out",
            )
    if study.recipe.real:
        _expect_one_each(study.recipe.name, cells)
    _expect_own_directories(cells)
    for cell in cells if study.halving else ():
        _expect_search(study.recipe_of(cell), choices)
    directory.design(study.recipe.name, study.arguments, study.grid, choices)
    directory.expect_same_files(getattr(study.recipe.model, "sha256", ""))
    return [_job(directory, study, cell, threads) for cell in cells], devices, threads


def _refused(study: StudyPlan, cell: Cell) -> frozenset[str]:
    """Return what a cell refuses, also where the recipe leaves weights or activations real."""
    return cell.refused | replace(study.recipe_of(cell), real=cell.real).idle().keys()


def _expect_one_each(recipe: str, cells: Sequence[Cell]) -> None:
    """Raise InputError where cells are the same training of a recipe in full precision."""
    found: dict[tuple[object, ...], str] = {}
    for cell in cells:
        off = replace(cell, real=True).refused
        training = cell.seed, *((name, value) for name, value in cell.axes.items() if name not in off)
        if found.setdefault(training, cell.name) != cell.name:
            raise InputError(
                f"recipe {recipe}",
                expected=f"one of a binary network, so that {found[training]} and {cell.name} differ",
                found="real=True",
                fix="leave real out of the recipe; the study's own real adds the baseline",
            )


def _expect_own_directories(cells: Sequence[Cell]) -> None:
    """Raise InputError where two trainings would be in one directory, or the name of one is too long."""
    named: dict[str, Cell] = {}
    for cell in cells:
        other, fix = named.setdefault(cell.name, cell), "give each of these values a study of its own"
        names = [name for name in cell.axes if cell.axes[name] != other.axes.get(name)]
        apart = [text_of(one.axes.get(name, "")) for name in names for one in (other, cell)]
        expected = "values that differ in letters or digits, which directories are named by"
        expect_that(not apart, "study", expected=expected, found=" and ".join(dict.fromkeys(apart)), fix=fix)
        expected = f"names of directories of at most {_LONGEST} characters"
        found, fits = f"{cell.name[:60]}..., {len(cell.name)}", len(cell.name) <= _LONGEST
        fix = "vary fewer options, or shorter values"
        expect_that(fits, "study", expected=expected, found=found, fix=fix)


_LONGEST = 255


def _expect_search(recipe: Recipe, choices: Choices | None) -> None:
    plan, holdout = recipe.optimization, getattr(recipe.data, "holdout", "validation")
    if choices or holdout != "validation":
        found = "settings of a search that is over" if choices else f"--holdout {holdout}"
    elif plan.steps is not None:
        found = f"--steps {plan.steps}, which does not tell the epochs"
    elif plan.eval_interval * 3 > plan.epochs:
        found = f"--eval-interval {plan.eval_interval} in {plan.epochs} epochs"
    else:
        return
    raise InputError(
        "--halving",
        expected="a search on validation images, evaluated three times or more in each training",
        found=found,
        fix="leave it out, or change --holdout, --eval-interval, --steps to --epochs",
    )


def expect_places(jobs: int | None, devices: Sequence[str]) -> None:
    """Raise InputError unless so many trainings at a time, or these devices, can be."""
    expect_that(jobs is None or jobs >= 1, "jobs", expected="1 or more", found=jobs)
    _parts(jobs, devices)


def _parts(jobs: int | None, devices: Sequence[str]) -> tuple[Sequence[str], int]:
    """Return the devices, each as often as it trains at a time, and the threads of each process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if devices and jobs is not None:
        raise InputError("jobs", expected="none beside devices", found=str(jobs), fix="name one of them")
    joined = [len(expect_devices(device)) for device in devices]
    usual = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"] * cores
    asked = list(devices) or (usual if jobs is None else [usual[i % len(usual)] for i in range(jobs)])
    return asked, max(1, cores // (sum(joined) or len(asked)))


def _job(study: StudyDirectory, asked: StudyPlan, cell: Cell, threads: int) -> Job:
    """Return what is to be done about a cell."""
    directory, chosen = study.cell(cell), asked.recipe_of(cell)
    imports = list(files_run())
    return Job(
        cell=cell,
        directory=directory,
        command=[*asked.command_of(cell), "--out", cell.name],
        call=partial(train_cell, directory.path, chosen.settings(), imports, asked.data, threads),
        epochs=chosen.optimization.epochs,
        steps=chosen.optimization.steps,
        state="finished" if directory.finished else "waiting",
        halving=asked.halving,
    )


def _run(jobs: Sequence[Job], study: StudyPlan, devices: Sequence[str]) -> bool:
    """Train; returns whether it was told to stop."""
    console = Console(stderr=True, highlight=False, quiet=not study.progress)

    def tidy(job: Job) -> None:
        if job.state == "finished" and not study.keep_checkpoints:
            job.directory.discard_checkpoints()

    for job in jobs:
        tidy(job)
    headline = study.recipe.task.headline
    halving = Halving(headline) if study.halving else None
    with noting_signals() as request, Progress(jobs, headline, len(devices), console) as progress:

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
