"""What a study is to find out, cell by cell, and what came out of it, as plain records."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

from bitfactor.common.checks import as_tuples, record
from bitfactor.data.readers.identity import KEY
from bitfactor.recipes.own import value_of
from bitfactor.study.choices import Choices
from bitfactor.training import without_effect
from bitfactor.training.metrics.latents import LayerRecord

Value = bool | int | float | str | tuple[Any, ...] | None


class Row(NamedTuple):
    """A row of the paper's tables; its text is part of the names of its trainings.

    >>> str(Row("svd", "learned")), str(REAL)
    ('svd-learned', 'real')
    """

    latent: str
    scale: str

    def __str__(self) -> str:
        return "-".join(filter(None, self))


REAL = Row("real", "")
"""The full-precision baseline."""


@dataclass(frozen=True)
class Cell:
    """One training: a value on each axis, and a seed; `real` for the full-precision baseline.

    `chosen` are options that are no axes: a search chose them for the cell's row.
    """

    axes: Mapping[str, Value]
    seed: int
    real: bool = False
    chosen: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return the cell that `stored` is of; those of earlier versions had a chosen `rate` alone."""
        rate = stored.get("rate")
        chosen = stored.get("chosen") or ({} if rate is None else {"learning_rate": rate})
        axes, chosen = (_values(of, words="chosen" not in stored) for of in (stored["axes"], chosen))
        return cls(axes, stored["seed"], stored["real"], chosen)

    @property
    def row(self) -> Row:
        """The row of the paper's tables that the cell is of."""
        return REAL if self.real else Row(text_of(self.axes["latent"]), text_of(self.axes["scale"]))

    @property
    def refused(self) -> frozenset[str]:
        """Options that mean nothing to it, as far as its axes tell, and that a training like it refuses."""
        values = {**self.axes, **self.chosen}
        binary = {name: values.get(name) is not False for name in ("activations", "weights")}
        return frozenset(without_effect(self.row.latent, self.row.scale, real=self.real, **binary))

    @property
    def name(self) -> str:
        """Name of its directory."""
        others = [_part(name, value) for name, value in self.axes.items() if name not in ("latent", "scale")]
        return "-".join([_in_file_names(str(self.row)), f"seed{self.seed}", *others])

    @property
    def flags(self) -> list[str]:
        """What the cell adds to the flags of `bitfactor train`."""
        values = {**self.axes, **self.chosen}
        words = [word for name, value in values.items() for word in words_of(name, value)]
        return [*words, *["--real"] * self.real, "--seed", str(self.seed)]


@dataclass(frozen=True)
class Grid:
    """Every combination of the values in `axes`, for each seed; with `real`, of the baseline too.

    `axes` has at least latent and scale. A cell has those that mean something to it: the full-precision
    baseline none that are a choice of a binarization.

    Example
    -------
    >>> grid = Grid({"latent": ["none", "tucker"], "scale": ["learned"]}, seeds=[0, 1], real=True)
    >>> [cell.name for cell in grid][:3]
    ['none-learned-seed0', 'tucker-learned-seed0', 'real-seed0']
    """

    axes: Mapping[str, Sequence[Value]]
    seeds: Sequence[int]
    real: bool = False

    def __iter__(self) -> Iterator[Cell]:
        """Yield the cells, seed by seed, so that all rows have a first answer early."""
        rows = {name: values for name, values in self.axes.items() if name in ("latent", "scale")}
        others = {name: values for name, values in self.axes.items() if name not in rows}
        for seed in self.seeds:
            cells = [
                Cell({**row, **other}, seed) for other in _combinations(others) for row in _combinations(rows)
            ]
            if self.real:
                cells += [Cell(other, seed, real=True) for other in _combinations(others)]
            yield from {(cell.real, *cell.axes.items()): cell for cell in map(_as_it_matters, cells)}.values()


def _as_it_matters(cell: Cell) -> Cell:
    axes = {name: value for name, value in cell.axes.items() if name not in cell.refused}
    return replace(cell, axes=axes)


def _combinations(axes: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _part(name: str, value: Value) -> str:
    """Return an axis and its value as they stand in a file's name."""
    text = _in_file_names(text_of(value))
    return f"lr{text}" if name == "learning_rate" else f"{name}={text}"


def _in_file_names(text: str) -> str:
    return re.sub("[^A-Za-z0-9_.,+-]", "_", text)


def words_of(name: str, value: Value) -> list[str]:
    """Return an option as words of a command line; one that takes no value is --name or --no-name."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *text_of(value).split()]


def shown_options(options: Mapping[str, Any]) -> str:
    """Return options as flags."""
    return " ".join(word for option in options.items() for word in words_of(*option))


def text_of(value: object) -> str:
    """Return a value as people write it: six digits of a number, or all where those are of another."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return " ".join(map(text_of, value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return repr(value) if isinstance(value, float) and float(text) != value else text


def _values(stored: Mapping[str, Any], *, words: bool) -> dict[str, Value]:
    """Return options as values; earlier versions stored `words`, and flags: no-move=True is move=False."""
    if not words:
        return {name: as_tuples(value) for name, value in stored.items()}
    values = {}
    for name, value in stored.items():
        off = name.startswith("no-")
        values[name.removeprefix("no-").replace("-", "_")] = not off if value is True else value_of(value)
    return values


Setting = tuple[tuple[str, Value], ...]
"""Values of the axes beside latent and scale, in the order of the study."""


@dataclass(frozen=True)
class Outcome:
    """What came out of a finished training; networks are compared by the metric `headline`.

    `seconds` are those of all epochs. `cpu_seconds` are those of the process: None where the training
    was `resumed`, as what was spent before is unknown.
    """

    headline: str
    metrics: Mapping[str, float]
    seconds: float
    cpu_seconds: float | None = None
    resumed: bool = False
    epochs: int = 0
    file: str | None = None
    bytes: int | None = None
    not_exported: str | None = None
    host: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.resumed:
            object.__setattr__(self, "cpu_seconds", None)


@dataclass(frozen=True)
class Training:
    """A cell of a study and what is known of it so far; `network` is its exported file where there is one."""

    cell: Cell
    setting: Setting
    command: Sequence[str]
    log: Sequence[Mapping[str, Any]] = ()
    outcome: Outcome | None = None
    layers: Mapping[str, LayerRecord] = field(default_factory=dict)
    network: Path | None = None
    given_up: bool = False
    diverged: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    """What its recipe.json says: all settings, hashes of imported files and of the data, versions."""

    @property
    def chosen(self) -> Mapping[str, Value]:
        """What was chosen for the row: by a search before, and the learning rate where it is an axis."""
        rate = {name: value for name, value in self.setting if name == "learning_rate"}
        return {**rate, **self.cell.chosen}

    @property
    def end(self) -> str:
        """How it has ended: finished, diverged, given up or unfinished."""
        if self.outcome is not None:
            return "finished"
        return "diverged" if self.diverged else "given up" if self.given_up else "unfinished"

    @property
    def state(self) -> str:
        """How it has ended, and where if not at its last epoch."""
        if self.outcome is not None:
            return self.end
        return f"{self.end}, epoch {self.log[-1]['epoch']}" if self.log else f"{self.end}, no epoch"

    @property
    def options(self) -> dict[str, Value]:
        """All options that it was trained with, defaults too; none of a study of an earlier version."""
        settings = self.record.get("settings", {})
        parts = ("model", "data", "binarization", "optimization")
        return {name: value for part in parts for name, value in settings.get(part, {}).items()}

    @property
    def provenance(self) -> dict[str, str]:
        """What its figures are of and came from, beside its options; what is not known is left out."""
        data, imports = self.record.get(KEY) or {}, self.record.get("imports")
        files = imports.items() if isinstance(imports, dict) else ()
        versions = self.record.get("versions") or {}
        found = {
            "evaluated_on": data.get("evaluated"),
            "images_to_train_on": data.get("train"),
            "hash_of_data": data.get("fingerprint"),
            "hash_of_imports": ", ".join(f"{path.rpartition('/')[2]} {of[:12]}" for path, of in files),
            "hash_of_code": self.record.get("revision"),
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
            "machine": self.record.get("machine"),
        }
        return {name: str(value) for name, value in found.items() if value}

    def metric(self, name: str) -> float | None:
        """Return a final metric, None where there is none."""
        return self.outcome.metrics.get(name) if self.outcome else None

    def curve(self, name: str) -> tuple[tuple[float, float], ...]:
        """Return (epoch, value) of each line of the log that has the value."""
        return tuple((float(line["epoch"]), float(line[name])) for line in self.log if name in line)


@dataclass(frozen=True)
class Design:
    """What a study varies (`axes`, `seeds`, `real`), what is fixed (`arguments`), and where it began."""

    recipe: str
    arguments: Mapping[str, Value]
    axes: Mapping[str, Sequence[Value]]
    seeds: Sequence[int]
    real: bool = False
    choices: Choices | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: str | None = None
    machine: str | None = None
    started: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Design":
        """Return the design that has the values of `stored`."""
        earlier = "rates" in stored  # as they named choices; they held words as they were typed
        read, choices = (value_of, stored["rates"]) if earlier else (as_tuples, stored.get("choices"))
        axes = {name: [read(value) for value in values] for name, values in stored["axes"].items()}
        kept = {name: value for name, value in stored.items() if name != "rates"}
        kept |= {"arguments": _values(stored["arguments"], words=earlier), "axes": axes}
        return record(cls, {**kept, "choices": Choices.of(choices, read) if choices else None})

    @property
    def grid(self) -> Grid:
        """Its cells."""
        return Grid(self.axes, self.seeds, self.real)


@dataclass(frozen=True)
class Study:
    """A grid of trainings, read from `path`.

    `holdout` is what was evaluated on, validation or test, where the recipe leaves it open. `speed` is None
    before the exported networks have been timed.
    """

    path: Path
    design: Design
    trainings: Sequence[Training]
    holdout: str | None = None
    speed: Mapping[str, Any] | None = None

    @cached_property
    def finished(self) -> Sequence[Training]:
        """The trainings that are finished."""
        return [training for training in self.trainings if training.outcome is not None]

    @property
    def headline(self) -> str:
        """The metric by which networks are compared."""
        return next((one.outcome.headline for one in self.finished if one.outcome), "accuracy")

    @property
    def axes(self) -> dict[str, Sequence[Value]]:
        """The axes beside latent and scale that have several values."""
        return varied(self.design.axes)

    @property
    def latents(self) -> Sequence[str]:
        return [text_of(latent) for latent in self.design.axes["latent"]]

    @property
    def scales(self) -> Sequence[str]:
        return [text_of(scale) for scale in self.design.axes["scale"]]

    @property
    def rows(self) -> Sequence[Row]:
        """The rows of the paper's tables that the study asks for, without the baseline."""
        return [Row(*row) for row in product(self.latents, self.scales)]

    def settings(self) -> list[Setting]:
        """Return every combination of the axes beside latent and scale."""
        named = [[(name, value) for value in values] for name, values in self.axes.items()]
        return [tuple(values) for values in product(*named)]

    def missing(self) -> list[Cell]:
        """Return what the grid asks for and has not begun."""
        begun = {training.cell.name for training in self.trainings}
        return [cell for cell in self.design.grid if cell.name not in begun]


def varied(axes: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
    """Return the axes beside latent and scale that have several values."""
    return {
        name: values for name, values in axes.items() if name not in ("latent", "scale") and len(values) > 1
    }


def setting_of(cell: Cell, axes: Mapping[str, Sequence[Value]]) -> Setting:
    """Return a cell's values on the axes of a study that are `varied`."""
    return tuple((name, cell.axes[name]) for name in varied(axes) if name in cell.axes)
