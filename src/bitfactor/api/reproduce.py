"""`bitfactor.reproduce`: a table or figure of the paper, trained row by row and shown beside the paper's."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bitfactor.api.ablate import grid_of
from bitfactor.api.network import network_at
from bitfactor.api.poses import examples, find_keypoints, instances_of
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.files import write_json
from bitfactor.common.result import Result, text_table
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.study import Study, read_study
from bitfactor.study.documents import Figure, montages, write_csv, write_html, write_markdown
from bitfactor.study.exhibit import Found, exhibit_document, logs, outcome_table
from bitfactor.study.paper import EXHIBITS, Exhibit, Method, Setting
from bitfactor.study.run import StudyPlan, expect_places, run_studies
from bitfactor.training import Recipe, without_effect
from bitfactor.training.estimate import Estimate, estimate

_INSTANCES = 6
_NOTE = "reproduction.json"  # what a directory is for
_SUSTAINED = 3e13  # operations per second of a GPU in training, assumed


@dataclass(frozen=True)
class Reproduction(Result):
    """What came out of the rows of a table or figure; `page` shows it, `logs` has a line for each epoch."""

    page: Path
    logs: Path
    rows: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        head = list(self.rows[0])
        cells = [["–" if row[name] is None else str(row[name]) for name in head] for row in self.rows]
        return f"{text_table(head, cells)}\n\n{self.page}"


@dataclass(frozen=True)
class Budget(Result):
    """What the rows of a table or figure would take, `seeds` trainings of each, one after the other."""

    exhibit: str
    seeds: int
    rows: Mapping[str, Estimate]

    @property
    def hours(self) -> float:
        """All trainings on this machine."""
        return self.seeds * sum(row.hours for row in self.rows.values())

    @property
    def exaflops(self) -> float:
        """Floating-point operations of all trainings, in 1e18."""
        return self.seeds * sum(row.exaflops for row in self.rows.values())

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"hours": self.hours, "exaflops": self.exaflops}

    def __str__(self) -> str:
        head = ["row", "parameters", "steps", "hours here", "memory, GiB", "1e18 operations"]
        cells = [
            [
                name,
                f"{row.parameters:,}",
                f"{row.steps:,}",
                f"{row.hours:,.1f}",
                f"{row.memory / 2**30:.1f}",
                f"{row.exaflops:.2f}",
            ]
            for name, row in self.rows.items()
        ]
        some, plural = next(iter(self.rows.values())), "s" * (self.seeds > 1)
        on_gpu = self.exaflops * 1e18 / _SUSTAINED / 3600
        return (
            f"{text_table(head, cells, right=range(1, 6))}\n\n"
            f"{self.exhibit}, {self.seeds} seed{plural}: {self.hours:,.1f} hours on {some.device}; "
            f"{self.exaflops:.2f}e18 operations, {on_gpu:,.1f} hours of a GPU that sustains 30 TFLOP/s\n"
            "hours here are by a few steps: between half and twice as many"
        )


@checked
def reproduce(
    exhibit: Exhibit,
    *,
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    row: str | None = None,
    small: bool = False,
    seeds: int | None = None,
    jobs: int | None = None,
    devices: Sequence[str] = (),
    dry_run: bool = False,
    progress: bool = True,
) -> Reproduction | Budget:
    """Train the rows of a table or figure of the paper, exactly those, and show them beside the paper's.

    What is finished is not repeated: the same call resumes. Tables and figures of the same experiment may
    share a directory, and with it their rows.

    Parameters
    ----------
    exhibit
        A table or figure of the paper.
    out
        Directory of the trainings and the page.
    data
        Directory of the data: MPII or ImageNet; with `small` Leeds Sports Pose or CIFAR-10.
    row
        One row alone, by its name there.
    small
        The same rows with a small network, small data and few steps, where the paper's are out of reach.
    seeds
        Trainings of each row: 1, or 2 with `small`, if left out.
    jobs
        Trainings at a time on the CPU, see `ablate`.
    devices
        Where to train, see `ablate`.
    dry_run
        Say what time and memory it would take, and train nothing; needs no data.

    Raises
    ------
    InputError
        If the data are missing or of another data set, or `out` holds something else.

    Example
    -------
    >>> print(bitfactor.reproduce("table2", out="runs/images", data="cifar", small=True))
    """
    shown = EXHIBITS[exhibit]
    methods = [one for one in shown.methods if row in (None, one.name)]
    if not methods:
        fix = near_matches(str(row), [one.name for one in shown.methods])
        raise InputError("row", expected=f"a row of {exhibit}", found=str(row), fix=fix)
    setting = shown.experiment.small if small else shown.experiment.paper
    number = (2 if small else 1) if seeds is None else seeds
    if number < 1:
        raise InputError("seeds", expected="1 or more", found=str(seeds), fix="change it, or leave it out")
    recipes = {method.name: _recipe(setting, method, small=small) for method in methods}
    expect_places(jobs, devices)
    if dry_run:
        costs, status = {}, Console(stderr=True, highlight=False, quiet=not progress)
        for name, recipe in recipes.items():
            status.print(f"timing {name}")
            costs[name] = estimate(recipe, setting.images)
        return Budget(exhibit, number, costs)
    place, images = Path(out), None if data is None else Path(data)
    _expect_same(place, {"recipe": setting.recipe, "small": small})
    base = recipe_named(setting.recipe)
    base.data(images)  # says at once what is wrong with them
    write_json(place / _NOTE, {"recipe": setting.recipe, "small": small}, indent=None)
    studies = {}
    for method in methods:
        options = _options(setting, method, small=small)
        rate = options.pop("learning_rate", None)
        rates = [] if rate is None else [rate]
        studies[place / "rows" / method.slug] = StudyPlan(
            replace(base, real=method.real),
            dict(sorted(options.items())),
            grid_of([method.latent], [method.scale], rates, {}, seeds=number, real=False, jobs=jobs),
            data=images,
            jobs=jobs,
            devices=devices,
            progress=progress,
        )
    done = run_studies(studies)
    found = []
    for method, path in zip(methods, studies, strict=True):
        network, study = recipes[method.name].model(), read_study(path)
        parameters = sum(parameter.numel() for parameter in network.parameters())
        found += [Found(method, study, parameters)] if study.finished else []
    written = _written(exhibit, place, setting, found, images, small=small) if found else None
    if written is None or any(one.failed or one.interrupted for one in done):
        names = ", ".join(name for one in done for name in one.failed) or "the rest"
        page = f"; {written.page} shows what is finished" if written else ""
        raise InputError(
            place,
            expected=f"finished trainings of {exhibit}",
            found=f"{names} not finished",
            fix=f"read its output.txt; the same call resumes{page}",
        )
    return written


def _recipe(setting: Setting, method: Method, *, small: bool) -> Recipe:
    options = _options(setting, method, small=small)
    row = {"latent": method.latent, "scale": method.scale, "real": method.real}
    return with_options(recipe_named(setting.recipe), {**options, **row})


def _options(setting: Setting, method: Method, *, small: bool) -> dict[str, Any]:
    options = {**setting.options, **method.options, **(method.small if small else {})}
    idle = without_effect(method.latent, method.scale)
    return {name: value for name, value in options.items() if name not in idle}


def _expect_same(place: Path, record: Mapping[str, object]) -> None:
    """Raise InputError where the directory is for something else."""
    file = place / _NOTE
    if file.exists():
        before = json.loads(file.read_text())
        if before != record:
            raise InputError(
                place,
                expected=f"a new directory, or one with rows of {_described(record)}",
                found=f"rows of {_described(before)}",
                fix="choose another --out",
            )
        return
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(
            place,
            expected="a new directory, or one of an earlier `reproduce`",
            found="something else",
            fix="choose another --out",
        )


def _described(record: Mapping[str, object]) -> str:
    return f"{record['recipe']}{', --small' if record['small'] else ''}"


def _written(
    exhibit: Exhibit, place: Path, setting: Setting, found: list[Found], images: Path | None, *, small: bool
) -> Reproduction:
    poses = _poses(found[-1].study, images) if exhibit == "figure5" else []
    document = exhibit_document(exhibit, setting, found, poses, small=small)
    write_html(document, place / f"{exhibit}.html")
    write_markdown(document, place / f"{exhibit}.md")
    write_csv(logs(found), place / f"{exhibit}.csv")
    table = outcome_table(exhibit, found)
    rows = tuple(dict(zip(table.head, row, strict=True)) for row in table.rows)
    return Reproduction(place / f"{exhibit}.html", place / f"{exhibit}.csv", rows)


def _poses(study: Study, images: Path | None) -> list[Figure]:
    """Return what the first network of a study finds best, in the middle and worst."""
    network = network_at(next(one.network for one in study.finished if one.network is not None))
    instances = instances_of(network, images)
    parts = examples(instances, find_keypoints(instances), _INSTANCES)
    return montages("figure5", parts, ".")
