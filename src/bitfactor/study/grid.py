"""The cells of a study: every combination of the values that its axes have."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self

from bitfactor.training import without_effect

Value = str | float


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

    `rate` is a learning rate that is no axis, but the one chosen for the cell's row.
    """

    axes: Mapping[str, Value]
    seed: int
    real: bool = False
    rate: float | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the cell that `record` is of."""
        return cls(record["axes"], record["seed"], record["real"], record.get("rate"))

    @property
    def record(self) -> dict[str, Any]:
        """The cell as plain values."""
        return {"axes": dict(self.axes), "real": self.real, "seed": self.seed, "rate": self.rate}

    @property
    def row(self) -> Row:
        """The row of the paper's tables that the cell is of."""
        return REAL if self.real else Row(str(self.axes["latent"]), str(self.axes["scale"]))

    @property
    def refused(self) -> frozenset[str]:
        """Options that mean nothing to it, as far as its axes tell, and that a training like it refuses."""
        binary = {name: self.axes.get(name) != "off" for name in ("activations", "weights")}
        return frozenset(without_effect(self.row.latent, self.row.scale, real=self.real, **binary))

    @property
    def name(self) -> str:
        """Name of its directory.

        >>> Cell({"latent": "svd", "scale": "learned", "learning_rate": 0.003}, seed=1).name
        'svd-learned-seed1-lr0.003'
        """
        others = [_part(name, value) for name, value in self.axes.items() if name not in ("latent", "scale")]
        return "-".join([str(self.row), f"seed{self.seed}", *others])

    @property
    def flags(self) -> list[str]:
        """What the cell adds to the flags of `bitfactor train`."""
        chosen = [flag for name, value in self.axes.items() for flag in _flag(name, value)]
        rate = [] if self.rate is None else _flag("learning_rate", self.rate)
        return [*chosen, *rate, *["--real"] * self.real, "--seed", str(self.seed)]


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
    text = re.sub("[^A-Za-z0-9_.,+-]", "_", text_of(value))
    return f"lr{text}" if name == "learning_rate" else f"{name}={text}"


def _flag(name: str, value: Value) -> list[str]:
    """Return an axis as a flag; one that takes no value is --name with `on`, and --no-name with `off`."""
    flag = name.replace("_", "-")
    if value in ("on", "off"):
        return [f"--{flag}" if value == "on" else f"--no-{flag}"]
    return [f"--{flag}", *text_of(value).split()]


def text_of(value: Value) -> str:
    """Return a value as a flag has it: six digits of a number, or all where those are of another.

    >>> text_of(0.001), text_of(0.0012345678)
    ('0.001', '0.0012345678')
    """
    text = f"{value}" if isinstance(value, str) else f"{value:g}"
    return text if isinstance(value, str) or float(text) == value else repr(value)
