"""What `bitfactor ablate` left in a directory, as plain values.

study.json                 recipe, fixed flags, axes, seeds, versions, revision, machine, start
speed.json                 what the exported networks weigh and take, once a report has measured it
cells/NAME/cell.json       the values of the axes, the seed and the command of one training
cells/NAME/log.jsonl       one line per epoch
cells/NAME/outcome.json    what came out, once it is finished
cells/NAME/layers.json     histograms and spectra of the trained network
cells/NAME/net.safetensors the exported network
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from bitfactor.errors import InputError

Setting = tuple[tuple[str, Any], ...]
"""Values of the axes beside latent and scale, in the order of the study."""

Row = tuple[str, str]
"""Latent and scale; ("real", "") is the full-precision baseline."""

REAL: Row = ("real", "")


@dataclass(frozen=True)
class Histogram:
    """Counts of values between edges, and of those below the first and above the last."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: int = 0
    above: int = 0


@dataclass(frozen=True)
class Layer:
    """A binary layer after training: alpha, the weight before its sign, and its factors' singular values."""

    alpha: Histogram | None
    weight: Histogram
    std: float
    share_outside: float
    spectra: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Cell:
    """One training: where it stands in the grid, and what is known of it so far.

    `rate` is the learning rate that was chosen for its row, None where none was.
    """

    name: str
    row: Row
    setting: Setting
    seed: int
    rate: float | None
    command: tuple[str, ...]
    log: tuple[Mapping[str, Any], ...]
    outcome: Mapping[str, Any] | None
    layers: Mapping[str, Layer]

    @property
    def state(self) -> str:
        """What has been done: finished, so many epochs, or nothing."""
        if self.outcome is not None:
            return "finished"
        return f"not finished, epoch {self.log[-1]['epoch']}" if self.log else "not finished, no epoch"

    def metric(self, name: str) -> float | None:
        """Return a final test metric, None where there is none."""
        value = (self.outcome or {}).get("metrics", {}).get(name)
        return None if value is None else float(value)

    def curve(self, name: str) -> tuple[tuple[float, float], ...]:
        """Return (epoch, value) of each line of the log that has the value."""
        return tuple((float(line["epoch"]), float(line[name])) for line in self.log if name in line)


@dataclass(frozen=True)
class Study:
    """A grid of trainings.

    `axes` are those beside latent and scale that have several values; `speed` is None before it is measured.
    """

    path: Path
    record: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    latents: tuple[str, ...]
    scales: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    speed: Mapping[str, Any] | None

    @cached_property
    def finished(self) -> tuple[Cell, ...]:
        """The cells whose training is finished."""
        return tuple(cell for cell in self.cells if cell.outcome is not None)

    @property
    def headline(self) -> str:
        """The metric by which networks are compared."""
        return str(next((cell.outcome["headline"] for cell in self.finished if cell.outcome), "accuracy"))

    @property
    def holdout(self) -> str | None:
        """What was measured on, where the recipe leaves it open: validation or test."""
        return self.record.get("holdout")

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the paper's tables that the study asks for."""
        return tuple(product(self.latents, self.scales))

    def settings(self) -> list[Setting]:
        """Return every combination of the axes beside latent and scale."""
        named = [[(name, value) for value in values] for name, values in self.axes.items()]
        return [tuple(values) for values in product(*named)]

    def missing(self) -> list[tuple[Row, Setting, int]]:
        """Return what the grid asks for and no cell has begun."""
        there = {(cell.row, cell.setting, cell.seed) for cell in self.cells}
        asked = [*product(self.rows, self.settings(), self.seeds), *self._baselines()]
        return [place for place in asked if place not in there]

    def _baselines(self) -> list[tuple[Row, Setting, int]]:
        """Return the baselines that are asked for; they have the axes that mean something for them."""
        if not self.record.get("real"):
            return []
        begun = [cell.setting for cell in self.cells if cell.row == REAL]
        names = dict(begun[0]).keys() if begun else {"learning_rate"}
        kept = dict.fromkeys(tuple(pair for pair in one if pair[0] in names) for one in self.settings())
        return list(product([REAL], kept, self.seeds))


def is_study(path: Path) -> bool:
    """Return whether the directory is that of a study."""
    return (path / "study.json").is_file()


def read_study(path: Path) -> Study:
    """Read the directory of a study, finished or not.

    Raises
    ------
    InputError
        If there is none, or one of its files cannot be read.

    Example
    -------
    >>> [cell.metric("accuracy") for cell in read_study(Path("runs/t")).finished]
    [0.9611, 0.9583]
    """
    record = _record(path / "study.json", ("recipe", "axes", "seeds"))
    axes = {_plain(name): tuple(values) for name, values in record["axes"].items()}
    others = {
        name: values for name, values in axes.items() if name not in ("latent", "scale") and len(values) > 1
    }
    files = sorted((path / "cells").glob("*/cell.json"))
    cells = [_cell(file, tuple(others)) for file in files]
    latents = axes.get("latent", ()) or _found(cells, 0)
    scales = axes.get("scale", ()) or _found(cells, 1)
    speed = path / "speed.json"
    return Study(
        path,
        {**record, "holdout": _holdout(files)},
        others,
        latents,
        scales,
        tuple(record["seeds"]),
        tuple(sorted(cells, key=lambda cell: cell.seed)),
        _record(speed, ("machine", "cells")) if speed.exists() else None,
    )


def _found(cells: Sequence[Cell], place: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.row[place] for cell in cells if cell.row != REAL))


def _holdout(files: Sequence[Path]) -> str | None:
    """Return what the first training that has settings measures on."""
    recipes = (file.with_name("recipe.json") for file in files)
    settings: dict[str, Any] = next(
        (_record(file, ("settings",))["settings"] for file in recipes if file.exists()), {}
    )
    found = settings.get("data", {}).get("holdout")
    return None if found is None else str(found)


def _cell(file: Path, names: Sequence[str]) -> Cell:
    record = _record(file, ("axes", "seed", "command"))
    values = {_plain(name): value for name, value in record["axes"].items()}
    real = bool(record.get("real"))
    setting = tuple((name, values[name]) for name in names if name in values)
    outcome, layers = file.with_name("outcome.json"), file.with_name("layers.json")
    return Cell(
        file.parent.name,
        REAL if real else (values.get("latent", ""), values.get("scale", "")),
        setting,
        record["seed"],
        dict(setting).get("learning_rate", record.get("rate")),
        tuple(map(str, record["command"])),
        _log(file.with_name("log.jsonl")),
        _record(outcome, ("headline", "metrics", "seconds")) if outcome.exists() else None,
        _layers(layers) if layers.exists() and not real else {},
    )


def _layers(file: Path) -> dict[str, Layer]:
    try:
        return {name: _layer(values) for name, values in _record(file).items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _unreadable(file, f"no {error}") from error


def _layer(values: Mapping[str, Any]) -> Layer:
    return Layer(
        _histogram(values["alpha"]) if values.get("alpha") else None,
        _histogram(values["weight"]),
        values["std"],
        values["share_outside"],
        values.get("spectra", {}),
    )


def _histogram(values: Mapping[str, Any]) -> Histogram:
    return Histogram(
        tuple(values["edges"]), tuple(values["counts"]), values.get("below", 0), values.get("above", 0)
    )


def _log(file: Path) -> tuple[Mapping[str, Any], ...]:
    if not file.exists():
        return ()
    try:
        return tuple(json.loads(line) for line in file.read_text().splitlines())
    except ValueError as error:
        raise _unreadable(file, str(error)) from error


def _record(file: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(file.read_text())
        lacking = [name for name in names if name not in record]
    except FileNotFoundError as error:
        raise InputError(
            file,
            expected="the directory of a study",
            found="no such file",
            fix="give what `bitfactor ablate RECIPE --out` wrote",
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(file, str(error)) from error
    if lacking:
        raise _unreadable(file, f"no {lacking[0]!r}")
    return record


def _unreadable(file: Path, found: str) -> InputError:
    return InputError(
        file,
        expected="what `bitfactor ablate` writes",
        found=found,
        fix="delete the cell, or restore the file, and start the study again",
    )


def _plain(name: str) -> str:
    return name.replace("-", "_")
