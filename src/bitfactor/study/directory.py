"""A study's directory.

study.json                 its `Design`
claim                      locked by the call that writes it
speed.json                 what the exported networks weigh and take, once a report has timed them
cells/NAME/                a run's directory (see `bitfactor.training.run`), and beside that
    cell.json              its `Cell` and its command
    output.txt             what the training printed
    net.safetensors        the exported network
    outcome.json           its `Outcome`; where it stands, the cell is finished
    given-up               where it stands without an outcome, the cell was given up (see `Halving`); says
                           "diverged" where its loss was no number
    claim                  locked by the study that trains it
"""

import fcntl
import json
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

from bitfactor.common.checks import record
from bitfactor.common.errors import InputError
from bitfactor.common.files import files_run, made_directory, run_again, write_json
from bitfactor.common.result import plain
from bitfactor.recipes import recipe_of
from bitfactor.recipes.runs import export_run
from bitfactor.study.choices import Choices
from bitfactor.study.grid import (
    Cell,
    Design,
    Grid,
    Outcome,
    Study,
    Training,
    Value,
    setting_of,
    text_of,
)
from bitfactor.training import Run
from bitfactor.training.run import FileOf, machine, revision, versions

T = TypeVar("T")
_DIVERGED = "diverged"


@dataclass(frozen=True)
class CellDirectory(Run):
    """The directory `path` of a cell: a run's, and what the study knows of it."""

    output = FileOf("output.txt")
    network = FileOf("net.safetensors")
    _given_up = FileOf("given-up")
    _outcome = FileOf("outcome.json")
    _cell = FileOf("cell.json")

    @property
    def finished(self) -> bool:
        """Whether all of it is there."""
        return self._outcome.exists()

    @property
    def given_up(self) -> bool:
        """Whether it was ended early, and nothing has trained it to its end since."""
        return self._given_up.exists() and not self.finished

    @property
    def diverged(self) -> bool:
        """Whether that was because its loss was no number."""
        return self.given_up and self._given_up.read_text() == _DIVERGED

    def give_up(self, *, diverged: bool = False) -> None:
        """Write down that it is ended early, as hopeless or because its loss was no number."""
        self._given_up.write_text(_DIVERGED if diverged else "")

    def others(self) -> list[Run]:
        """Return the trainings of the study's other cells, those that have got somewhere."""
        cells = (CellDirectory(path) for path in sorted(self.path.parent.iterdir()) if path != self.path)
        return [cell for cell in cells if cell.finished or cell.checkpoint.exists()]

    def claim(self) -> IO[str] | None:
        """Claim the cell for this process, until it closes the file or ends; None if another one has it.

        Others are those of calls on the same folder, here or on a machine that shares it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = (self.path / "claim").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def describe(self, cell: Cell, command: Sequence[str]) -> None:
        """Write down what the cell is, which is to be trained now, given up before or not."""
        self._given_up.unlink(missing_ok=True)
        write_json(self._cell, {**asdict(cell), "command": list(command)})

    def finish(self, outcome: Outcome) -> None:
        """Write down what came out."""
        write_json(self._outcome, asdict(outcome))

    def outcome(self) -> Outcome:
        """Return what came out of a finished cell."""
        return _read(self._outcome, partial(record, Outcome))

    def training(self, design: Design) -> Training:
        """Return what is known of the cell of a study."""
        cell = _read(self._cell, Cell.of)
        return Training(
            cell,
            setting_of(cell, design.axes),
            _read(self._cell, lambda stored: tuple(map(str, stored["command"]))),
            self.history(),
            self.outcome() if self.finished else None,
            self.layer_records(),
            self.network if self.network.exists() else None,
            self.given_up,
            self.diverged,
            _read(self.recipe, dict) if self.recipe.exists() else {},
        )

    def discard_checkpoints(self) -> None:
        """Delete what only a training that is resumed needs."""
        for checkpoint in self.path.glob("*.ckpt"):
            checkpoint.unlink(missing_ok=True)

    def tail(self) -> str:
        """Return the last lines that the training printed."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-8:])


@dataclass(frozen=True)
class StudyDirectory:
    """The directory `path` of a study."""

    path: Path

    _design = FileOf("study.json")
    _speed = FileOf("speed.json")

    @property
    def begun(self) -> bool:
        """Whether there is a study."""
        return self._design.is_file()

    def cell(self, cell: Cell) -> CellDirectory:
        """Return the directory of a cell."""
        return CellDirectory(self.path / "cells" / cell.name)

    def start(
        self, recipe: str, arguments: Mapping[str, Value], grid: Grid, choices: Choices | None = None
    ) -> None:
        """Record what the study is, see `design`. Several calls at once widen it one after the other."""
        self._expect_no_other()
        with (made_directory(self.path) / "claim").open("a") as claim:
            fcntl.flock(claim, fcntl.LOCK_EX)
            write_json(self._design, asdict(self.design(recipe, arguments, grid, choices)))

    def design(
        self, recipe: str, arguments: Mapping[str, Value], grid: Grid, choices: Choices | None = None
    ) -> Design:
        """Return what the study is, that of one begun before widened by new values and seeds.

        `choices` are the options that a search chose for its rows.
        """
        self._expect_no_other()
        design = Design(
            recipe,
            dict(arguments),
            {name: list(values) for name, values in grid.axes.items()},
            list(grid.seeds),
            grid.real,
            choices,
            versions(),
            revision(),
            machine(),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return self._widened(_read(self._design, Design.of), design) if self._design.exists() else design

    def expect_same_files(self, sha256: str) -> None:
        """Raise InputError if a training is of another version of the user's own files."""
        imports = {Path(file).name: content for file, content in files_run().items()}
        for path in sorted(self.path.glob("cells/*/recipe.json")):
            run = Run(path.parent)
            if run.settings()["model"].get("sha256", sha256) != sha256:
                raise self._unlike(f"{run.path.name}, of another version of the network's file")
            for file, content in run.imports().items():
                name = Path(file).name
                if content and imports.get(name, content) != content:
                    raise self._unlike(f"{run.path.name}, of another version of {name}")

    def _expect_no_other(self) -> None:
        if not self.path.exists():
            return
        found = {file.name for file in self.path.iterdir()} if self.path.is_dir() else {""}
        if found - {"claim", ".study.json.partial"} and "study.json" not in found:
            raise self._unlike("something that is no study")

    def _widened(self, old: Design, new: Design) -> Design:
        new = Design.of(plain(new))  # as it is read
        if old.recipe != new.recipe:
            raise self._unlike(f"a study of {old.recipe}")
        for name in {**old.arguments, **new.arguments}:
            if all(name in cell.refused for cell in [*old.grid, *new.grid]):
                continue
            before, now = (
                text_of(design.arguments[name]) if name in design.arguments else "its default"
                for design in (old, new)
            )
            if before != now:
                raise self._unlike(f"a study with {name.replace('_', '-')} = {before} instead of {now}")
        if old.choices != new.choices:
            raise self._unlike("a study with settings of another search")
        if old.axes.keys() != new.axes.keys():
            raise self._unlike(f"a study over {', '.join(old.axes)} instead of {', '.join(new.axes)}")
        axes = {name: [*dict.fromkeys([*old.axes[name], *new.axes[name]])] for name in old.axes}
        return replace(old, axes=axes, seeds=sorted({*old.seeds, *new.seeds}), real=old.real or new.real)

    def _unlike(self, found: str) -> InputError:
        return InputError(
            self.path,
            expected="a new directory, or one with a study of the same settings",
            found=found,
            fix="name the same, or choose another --out",
        )

    def read(self) -> Study:
        """Return the study, finished or not; files that its trainings imported are run first."""
        design = _read(self._design, Design.of)
        cells = [CellDirectory(file.parent) for file in sorted(self.path.glob("cells/*/cell.json"))]
        begun = [cell for cell in cells if cell.recipe.exists()]
        for file, sha256 in dict(chain.from_iterable(cell.imports().items() for cell in begun)).items():
            run_again(file, sha256)
        return Study(
            self.path,
            design,
            sorted((cell.training(design) for cell in cells), key=lambda training: training.cell.seed),
            begun[0].settings().get("data", {}).get("holdout") if begun else None,
            _read(self._speed, dict) if self._speed.exists() else None,
        )

    def write_speed(self, speed: Mapping[str, Any]) -> None:
        """Keep what the exported networks weigh and take."""
        write_json(self._speed, speed)


def _read(file: Path, take: Callable[[dict[str, Any]], T]) -> T:
    """Return what `take` makes of the object that a file holds."""
    try:
        return take(json.loads(file.read_text()))
    except FileNotFoundError as error:
        raise InputError(
            file,
            expected="the directory of a study",
            found="no such file",
            fix="give what `bitfactor ablate RECIPE --out` wrote",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            file,
            expected="what `bitfactor ablate` writes",
            found=f"no {error}" if isinstance(error, KeyError) else str(error),
            fix="delete the cell, or restore the file, and start the study again",
        ) from error


_BOOKKEEPING = frozenset(("epoch", "step", "loss", "learning_rate", "flipped", "seconds"))


def finish(cell: CellDirectory, *, resumed: bool) -> None:
    """Export the network of a training that is done, and write down what came out."""
    recipe, rows = recipe_of(cell), cell.history()
    reason = _export(cell)
    outcome = Outcome(
        headline=recipe.task.headline,
        metrics={name: value for name, value in rows[-1].items() if name not in _BOOKKEEPING},
        seconds=round(sum(row["seconds"] for row in rows), 1),
        cpu_seconds=round(_cpu_seconds(), 1),
        resumed=resumed,
        epochs=rows[-1]["epoch"],
        file=None if reason else cell.network.name,
        bytes=None if reason else cell.network.stat().st_size,
        not_exported=reason,
        host=machine(),
        versions=versions(),
        revision=revision(),
    )
    cell.finish(outcome)


def _export(cell: CellDirectory) -> str | None:
    """Export, and return why that is not done: a study compares the files of binary networks."""
    if cell.settings()["real"]:
        return "a full-precision baseline has no binary weights"
    try:
        export_run(cell, cell.network)
    except InputError as error:
        return str(error)
    return None


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
