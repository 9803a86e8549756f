"""A study's directory.

study.json                 what is varied and what is fixed
cells/NAME/                a run's directory (see `bitfactor.training.run`), and beside that
    cell.json              its values and its command
    output.txt             what the training printed
    layers.json            how scales, weights and factors are distributed at the end
    net.safetensors        the exported network
    outcome.json           what came out; where it stands, the cell is finished
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import bitfactor
from bitfactor.atomic import replacing
from bitfactor.errors import InputError
from bitfactor.machine import cpu_name
from bitfactor.study.grid import Cell, Grid
from bitfactor.training import Run
from bitfactor.training.run import versions


@dataclass(frozen=True)
class CellDirectory:
    """The directory `path` of a cell."""

    path: Path

    @property
    def run(self) -> Run:
        """Its training."""
        return Run(self.path)

    @property
    def output(self) -> Path:
        """What the training printed."""
        return self.path / "output.txt"

    @property
    def network(self) -> Path:
        """The exported network."""
        return self.path / "net.safetensors"

    @property
    def finished(self) -> bool:
        """Whether all of it is there."""
        return (self.path / "outcome.json").exists()

    def describe(self, cell: Cell, command: Sequence[str]) -> None:
        """Write down what the cell is."""
        write_json(self.path / "cell.json", {**cell.record, "command": list(command)})

    def outcome(self) -> dict[str, Any]:
        """Return what came out of a finished cell."""
        return read_json(self.path / "outcome.json")

    def discard_checkpoints(self) -> None:
        """Delete what only a training that goes on needs."""
        for checkpoint in self.path.glob("*.ckpt"):
            checkpoint.unlink()

    def tail(self, lines: int = 8) -> str:
        """Return the last lines that the training printed."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


@dataclass(frozen=True)
class StudyDirectory:
    """The directory `path` of a study."""

    path: Path

    def cell(self, cell: Cell) -> CellDirectory:
        """Return the directory of a cell."""
        return CellDirectory(self.path / "cells" / cell.name)

    def start(
        self,
        recipe: str,
        arguments: Mapping[str, str | bool],
        grid: Grid,
        rates: Mapping[str, Any] | None = None,
    ) -> None:
        """Record what the study is, or widen the record of one begun before by new values and seeds.

        `rates` is where the learning rates of its rows come from, see `Rates`.

        Raises
        ------
        InputError
            If there is something else in the directory, or a study of another recipe, other fixed flags
            or other axes.
        """
        record = {
            "recipe": recipe,
            "arguments": dict(arguments),
            "axes": {name: list(values) for name, values in grid.axes.items()},
            "seeds": list(grid.seeds),
            "real": grid.real,
            "rates": rates,
            "versions": versions(),
            "revision": revision(),
            "machine": machine(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        file = self.path / "study.json"
        if file.exists():
            record = self._widened(read_json(file), record)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise self._unlike("something that is no study")
        write_json(file, record)

    def _widened(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        if old["recipe"] != new["recipe"]:
            raise self._unlike(f"a study of {old['recipe']}")
        for name in {**old["arguments"], **new["arguments"]}:
            before, now = (record["arguments"].get(name, "its default") for record in (old, new))
            if before != now:
                raise self._unlike(f"a study with {name} = {before} instead of {now}")
        if old.get("rates") != new["rates"]:
            raise self._unlike("a study with learning rates of other origin")
        if old["axes"].keys() != new["axes"].keys():
            raise self._unlike(f"a study over {', '.join(old['axes'])} instead of {', '.join(new['axes'])}")
        axes = {name: _joined(values, new["axes"][name]) for name, values in old["axes"].items()}
        seeds = sorted({*old["seeds"], *new["seeds"]})
        return {**old, "axes": axes, "seeds": seeds, "real": old["real"] or new["real"]}

    def _unlike(self, found: str) -> InputError:
        return InputError(
            self.path,
            expected="a new directory, or one with a study of the same settings",
            found=found,
            fix="choose another --out, or delete the directory",
        )


def _joined(first: list[Any], second: list[Any]) -> list[Any]:
    return first + [value for value in second if value not in first]


def read_json(path: Path) -> dict[str, Any]:
    """Read an object.

    Raises
    ------
    InputError
        If the file holds none.
    """
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            path, expected="a file of a study", found=str(error), fix="delete it, and ablate again"
        ) from error
    return value


def write_json(path: Path, value: object, indent: int | None = 2) -> None:
    """Write an object, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=indent) + "\n")


@dataclass(frozen=True)
class Rates:
    """Learning rates by row, see `Cell.row`, and the search that chose them.

    `searched` are the rates that were compared, with `seeds` trainings of each in each row. `holdout` is what
    they were measured on, None for what the recipe measures on if not told.
    """

    chosen: dict[str, float]
    searched: list[float]
    seeds: int
    holdout: str | None

    @classmethod
    def best_of(cls, path: Path) -> "Rates":
        """Return, for each row of a study, the rate with the best mean over its seeds.

        Raises
        ------
        InputError
            If there is no study, or it varies more than latent, scale and learning rate, or not all of its
            rows are finished at every rate and seed.

        Example
        -------
        >>> Rates.best_of(Path("runs/search")).chosen
        {'none-learned': 0.003, 'tucker-learned': 0.001}
        """
        if not (path / "study.json").exists():
            raise _no_search(path, "no study.json")
        record = read_json(path / "study.json")
        varied = {name for name, values in record["axes"].items() if len(values) > 1}
        searched = record["axes"].get("learning_rate", [])
        if not searched or not varied <= {"latent", "scale", "learning_rate"}:
            raise _no_search(path, f"one over {', '.join(record['axes'])}")
        found: dict[str, dict[float, list[float]]] = {}
        for file in sorted((path / "cells").glob("*/cell.json")):
            cell, directory = Cell.of(read_json(file)), CellDirectory(file.parent)
            if not directory.finished:
                raise _no_search(path, f"{cell.name}, which is not")
            outcome = directory.outcome()
            rates = found.setdefault(cell.row, {rate: [] for rate in searched})
            rates[float(cell.axes["learning_rate"])].append(outcome["metrics"][outcome["headline"]])
        for row, rates in found.items():
            if any(len(values) < len(record["seeds"]) for values in rates.values()):
                raise _no_search(path, f"fewer trainings of {row}")
        chosen = {row: max(rates, key=lambda rate: mean(rates[rate])) for row, rates in found.items()}
        return cls(chosen, searched, len(record["seeds"]), record["arguments"].get("holdout"))


def _no_search(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="a study over latent, scale and learning rate, each row finished at every rate and seed",
        found=found,
        fix="give the --out of such a study, or finish it",
    )


def revision() -> str | None:
    """Return git's name of the source that runs, ending in `-dirty` if it was changed; None outside git."""
    source = Path(bitfactor.__file__)
    if not _git(source.parent, "ls-files", source.name):  # installed, maybe into another project's directory
        return None
    return _git(source.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", directory, *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def machine() -> str:
    """Return the name of the CPU, and of the GPU if there is one."""
    gpu = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return ", ".join([cpu_name(), *gpu])
