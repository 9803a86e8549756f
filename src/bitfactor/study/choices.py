"""The settings that a search chose, row by row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import mean
from typing import TYPE_CHECKING, Any, Self

from bitfactor.common.errors import InputError

if TYPE_CHECKING:
    from bitfactor.study.grid import Study, Value


@dataclass(frozen=True)
class Choices:
    """Options by row, and the search that chose them.

    `searched` are the values that were compared on each axis, with `seeds` trainings of each setting.
    `holdout` is what they were evaluated on, None for what the recipe evaluates on if not told.
    """

    chosen: "Mapping[str, Mapping[str, Value]]"
    searched: "Mapping[str, Sequence[Value]]"
    seeds: int
    holdout: str | None

    @classmethod
    def of(cls, stored: Mapping[str, Any], read: "Callable[[Any], Value]") -> Self:
        """Return the choices that `stored` is of, its values read; earlier versions chose the rate alone."""
        chosen, searched = stored["chosen"], stored["searched"]
        if not isinstance(searched, Mapping):
            chosen = {row: {"learning_rate": rate} for row, rate in chosen.items()}
            searched = {"learning_rate": searched}
        return cls(
            {row: {name: read(value) for name, value in of.items()} for row, of in chosen.items()},
            {name: [*map(read, values)] for name, values in searched.items()},
            stored["seeds"],
            stored["holdout"],
        )

    @classmethod
    def best_of(cls, study: "Study") -> Self:
        """Return, for each row of a study, the setting with the best mean over its seeds.

        Where trainings were given up, of the settings with the most that were not.

        Example
        -------
        >>> Choices.best_of(read_study(Path("runs/search"))).chosen["none-learned"]
        {'learning_rate': 0.003, 'weight_decay': 0.0001}
        """
        design = study.design
        searched = {name: of for name, of in design.axes.items() if name not in ("latent", "scale")}
        if not searched:
            raise _no_search(study, f"one over {', '.join(design.axes)}")
        trainings = {training.cell.name: training for training in study.trainings}
        found: dict[str, dict[tuple[tuple[str, Value], ...], list[float | None]]] = {}
        for cell in design.grid:
            training = trainings.get(cell.name)
            if training is None:
                raise _no_search(study, f"fewer trainings of {cell.row}")
            value = training.metric(study.headline)
            if value is None and not training.given_up:
                raise _no_search(study, f"{cell.name}, which is not")
            setting = tuple((name, cell.axes[name]) for name in searched if name in cell.axes)
            found.setdefault(str(cell.row), {}).setdefault(setting, []).append(value)
        for row, settings in found.items():
            if all(value is None for values in settings.values() for value in values):
                raise _no_search(study, f"no finished training of {row}")
        best = {row: max(of, key=lambda setting: rank(of[setting])) for row, of in found.items()}
        holdout = design.arguments.get("holdout")
        return cls(
            {row: dict(setting) for row, setting in best.items()},
            searched,
            len(design.seeds),
            None if holdout is None else str(holdout),
        )

    @property
    def settings(self) -> int:
        """How many settings were compared."""
        return prod(map(len, self.searched.values()))


def rank(values: Sequence[float | None]) -> tuple[int, float]:
    """Return what puts settings with more finished seeds first, then those with the higher mean."""
    known = [value for value in values if value is not None]
    return len(known), mean(known) if known else 0.0


def _no_search(study: "Study", found: str) -> InputError:
    return InputError(
        study.path,
        expected="a study over more than latent and scale, each row finished at every setting and seed",
        found=found,
        fix="give the --out of such a study, or finish it",
    )
