"""The learning rate that a study found best for each of its rows."""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bitfactor.errors import InputError
from bitfactor.study.directory import CellDirectory, read_json
from bitfactor.study.grid import Cell


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
