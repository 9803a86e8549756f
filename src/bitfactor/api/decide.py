"""`bitfactor.decide`: search, tests and a table of what they decide, by a plan that stands before them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bitfactor.api.ablate import grid_of
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, TerminatedError
from bitfactor.common.files import write_file, write_json
from bitfactor.common.result import Result
from bitfactor.recipes.own import option_values
from bitfactor.study import CellDirectory, Choices, StudyDirectory, read_study
from bitfactor.study.grid import Value
from bitfactor.study.plan import Plan
from bitfactor.study.run import StudyPlan, StudyTrial, expect_begins, run_studies, try_study
from bitfactor.study.statistics import Comparison, compared, sample, setting_name
from bitfactor.training.run import machine


@dataclass(frozen=True)
class Tested:
    """What a row reached, by seed, at the setting that its search has chosen.

    `edges` are the options whose chosen value is the least or the largest of those tried. Where rows are
    compared at equal time, `steps` and `seconds_a_step` say how that was made.
    """

    row: str
    mean: float
    deviation: float
    by_seed: Mapping[int, float]
    chosen: Mapping[str, Value]
    edges: tuple[str, ...] = ()
    steps: int | None = None
    seconds_a_step: float | None = None


@dataclass(frozen=True)
class Decision(Result):
    """What a plan's trainings decided, as fractions; prints as Markdown, in percent and points.

    `plan` is the plan's hash. A comparison is certain by Holm over all of them.
    """

    question: str
    plan: str
    recipe: str
    metric: str
    equal: str
    smallest_points: float
    rows: tuple[Tested, ...]
    comparisons: tuple[Comparison, ...]
    searched_on: str
    """Images of the search: "validation", or "test" where the recipe has no others."""

    def __str__(self) -> str:
        timed = ["steps", "seconds a step"] if self.equal == "time" else []
        rows = [
            [
                one.row,
                str(sample(list(one.by_seed.values()))),
                str(len(one.by_seed)),
                setting_name(tuple(one.chosen.items())),
                *([f"{one.steps:,}", f"{one.seconds_a_step:.4g}"] if timed else []),
            ]
            for one in self.rows
        ]
        found = [
            [
                f"{one.ours} over {one.theirs}",
                str(one.difference),
                f"{one.p:.2g}",
                "yes" if one.certain else "no",
                one.verdict,
            ]
            for one in self.comparisons
        ]
        edges = "".join(
            f"\nThe best {name} of {one.row} is the least or the largest tried. Search further.\n"
            for one in self.rows
            for name in one.edges
        )
        same = " The search saw the test images: the recipe has no others." * (self.searched_on == "test")
        return (
            f"# {self.question}\n\n"
            f"Plan {self.plan[:12]}, recipe {self.recipe}, compared at equal {self.equal}. The smallest "
            f"difference of interest, in points: {self.smallest_points:g}.{same}\n\n"
            f"{_markdown(['row', f'{self.metric}, %', 'seeds', 'chosen', *timed], rows)}{edges}\n"
            f"{_markdown(['comparison', 'points [95 % interval]', 'p', 'certain', 'verdict'], found)}"
        )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@checked
def decide(
    plan: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    devices: Sequence[str] = (),
    dry_run: bool = False,
    progress: bool = True,
) -> Decision | StudyTrial:
    """Answer a question by a plan: search each row's best setting, test it, and decide the comparisons.

    The plan is written into the directory before the first training, and another one is refused there. The
    same call resumes; what is finished is not repeated.

    Parameters
    ----------
    plan
        File of the plan, in TOML.
    out
        Directory of the trainings and of the result, result.md and result.json.
    data
        Directory of the data, for recipes that need one.
    jobs
        Trainings at a time on the CPU; as many as there are cores, with one thread each, if left out.
    devices
        Where to train, a training at a time on each, as in `ablate`.
    dry_run
        Time a few steps of each row here, say how long all of it would take, and write nothing.

    Raises
    ------
    InputError
        If a key of the plan is unknown, missing or of another type, if the plan has changed, or if a
        training failed.

    Example
    -------
    >>> print(bitfactor.decide("plan.toml", out="runs/decided"))
    """
    file, place = Path(plan), Path(out)
    work = _Work(Plan.read(file), place, None if data is None else Path(data), jobs, tuple(devices), progress)
    if dry_run:
        return _tried({**work.searches(), **work.tests(dry=True)}, place)
    _expect_tests(work, file)
    work.plan.begin(file, place)
    _train(work.searches(), place)
    if work.plan.equal == "time" and not work.times():
        write_json(place / _TIMES, _timed(work))
    tests = work.tests()
    _train(tests, place)
    decision = _decided(work, tests)
    write_file(place / "result.md", str(decision))
    write_json(place / "result.json", decision.to_dict())
    return decision


_TIMES = "step-times.json"


@dataclass(frozen=True)
class _Work:
    """The trainings of a plan: each row is a study of its own, in search/ROW and in test/ROW."""

    plan: Plan
    out: Path
    data: Path | None
    jobs: int | None
    devices: tuple[str, ...]
    progress: bool

    def searches(self) -> dict[Path, StudyPlan]:
        """Return the searches of the rows for which an axis means something."""
        meant = {row: self.plan.meant(row, self.plan.searched(row)) for row in self.plan.rows}
        budget = self.plan.search
        return {
            self.out / "search" / row: self._study(row, budget.seeds, budget.length, "validation", axes)
            for row, axes in meant.items()
            if axes
        }

    def tests(self, *, dry: bool = False) -> dict[Path, StudyPlan]:
        """Return the tests, each row at its best setting; in a dry run at the recipe's, if not begun yet."""
        found, budget, steps = {}, self.plan.test, self.times().get("steps", {})
        for row in self.plan.rows:
            search, path = self.out / "search" / row, self.out / "test" / row
            searched = StudyDirectory(search).begun and (not dry or StudyDirectory(path).begun)
            choices = Choices.best_of(read_study(search)) if searched else None
            length = {"steps": steps[row]} if row in steps else budget.length
            found[path] = self._study(row, budget.seeds, length, "test", {}, choices)
        return found

    def times(self) -> dict[str, Any]:
        """Return what was measured of the steps of the rows, nothing before that."""
        file = self.out / _TIMES
        return json.loads(file.read_text()) if file.exists() else {}

    def _study(
        self,
        row: str,
        seeds: int,
        length: Mapping[str, Value],
        holdout: str,
        axes: Mapping[str, Sequence[Value]],
        choices: Choices | None = None,
    ) -> StudyPlan:
        options = {**self.plan.meant(row, self.plan.options), **self.plan.fixed(row), **length}
        latent, scale = (str(options.pop(name)) for name in ("latent", "scale"))
        if "holdout" in option_values(self.plan.base):
            options["holdout"] = holdout
        return StudyPlan(
            self.plan.base,
            dict(sorted(options.items())),
            grid_of([latent], [scale], (), axes, seeds=seeds, real=False, jobs=self.jobs),
            choices,
            self.data,
            self.jobs,
            self.devices,
            progress=self.progress,
        )


def _tried(studies: Mapping[Path, StudyPlan], out: Path) -> StudyTrial:
    """Time the steps of all studies, and return it as of one."""
    found = {" of ".join(path.relative_to(out).parts): try_study(of, path) for path, of in studies.items()}
    rows = {f"{name}: {row}": one for name, trial in found.items() for row, one in trial.rows.items()}
    left = [f"{name}: {row}" for name, trial in found.items() for row in trial.trainings]
    return StudyTrial(rows, left, next(iter(found.values())).at_once)


def _expect_tests(work: _Work, file: Path) -> None:
    """Raise InputError where a test could not begin, before a search takes its hours."""
    for path, study in work.tests(dry=True).items():
        try:
            expect_begins(study)
        except InputError as error:
            where = str(error).partition(": expected ")[0]
            where = f"{file}: test of {path.name}: {where}"
            raise InputError(where, expected=error.expected, found=error.found, fix=error.fix) from error


def _timed(work: _Work) -> dict[str, Any]:
    """Time a step of each row, and return how many fit the time of the first row's."""
    found = {path.name: try_study(study, path) for path, study in work.tests().items()}
    trials = {row: next(iter(trial.rows.values())) for row, trial in found.items()}
    first = next(iter(trials.values()))
    time = first.total * first.seconds
    steps = {row: max(1, int(time / trial.seconds + 1e-6)) for row, trial in trials.items()}
    seconds = {row: trial.seconds for row, trial in trials.items()}
    return {"machine": machine(), "device": first.device, "seconds_a_step": seconds, "steps": steps}


def _train(studies: Mapping[Path, StudyPlan], out: Path) -> None:
    """Train what is not trained yet; a training that diverged in a search is no best setting."""
    done = run_studies(studies) if studies else []
    if any(one.interrupted for one in done):
        raise TerminatedError("stopped")
    failed = [
        path
        for one in done
        for name in (*one.failed, *one.given_up)
        if not (path := CellDirectory(one.out / "cells" / name)).diverged or one.out.parent.name == "test"
    ]
    if failed:
        raise InputError(
            out,
            expected="a finished training of each row and seed",
            found=", ".join(f"{one.path.relative_to(out)} not finished" for one in failed),
            fix="read its output.txt; the same command goes on from there",
        )


def _at_edge(value: Value, tried: Sequence[Value]) -> bool:
    numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
    return len(numbers) == len(tried) > 1 and value in (min(numbers), max(numbers))


def _decided(work: _Work, tests: Mapping[Path, StudyPlan]) -> Decision:
    plan, times = work.plan, work.times()
    studies = {path.name: read_study(path) for path in tests}
    metric = next(iter(studies.values())).headline
    values = {
        row: {one.cell.seed: float(one.outcome.metrics[metric]) for one in study.finished if one.outcome}
        for row, study in studies.items()
    }
    chosen = {row: study.trainings[0].chosen for row, study in studies.items()}
    rows = tuple(
        Tested(
            row,
            mean(of.values()),
            stdev(of.values()),
            of,
            chosen[row],
            tuple(name for name, one in chosen[row].items() if _at_edge(one, plan.searched(row)[name])),
            times.get("steps", {}).get(row),
            times.get("seconds_a_step", {}).get(row),
        )
        for row, of in values.items()
    )
    found = tuple(compared(values, plan.comparisons, plan.smallest_points / 100))
    about = plan.question, plan.sha256, plan.recipe, metric, plan.equal, plan.smallest_points
    searched_on = "validation" if "holdout" in option_values(plan.base) else "test"
    return Decision(*about, rows, found, searched_on)
