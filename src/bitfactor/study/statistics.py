"""Means over seeds, and differences with their confidence interval.

Rows of a study side by side, and against what the paper says of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev, variance
from typing import TypeVar

from scipy.special import stdtr, stdtrit

from bitfactor.study.choices import rank
from bitfactor.study.grid import REAL, Row, Setting, Study, Training, Value, text_of
from bitfactor.study.paper import published_for

T = TypeVar("T")
_LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation (of a sample, n - 1) of `n` fractions; one value has no deviation."""

    mean: float
    std: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The mean's 95 % interval by Student's t; one value has none."""
        if self.std is None:
            return None
        half = student(self.n - 1) * self.std / sqrt(self.n)
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}" + ("" if self.std is None else f" ± {100 * self.std:.2f}")


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences of fractions, with a 95 % interval where there are two `pairs` or more."""

    mean: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def sign(self) -> int:
        """The side of zero on which the whole interval lies: 1, -1, or 0 if on both or there is none."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{points(self.low)}, {points(self.high or 0.0)}]"
        return points(self.mean) + interval


def points(fraction: float) -> str:
    """Return a difference of fractions in points, with its sign."""
    return f"{100 * fraction:+.2f}".replace("-", "−")


def sample(values: Sequence[float]) -> Sample | None:
    """Return mean and deviation, None of nothing."""
    if not values:
        return None
    return Sample(mean(values), stdev(values) if len(values) > 1 else None, len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Return the mean of ours minus theirs over the seeds that both have, None where they have none.

    The interval is Student's: mean +- t(0.975, n - 1) s / sqrt(n), for differences that are normal.
    """
    found = sample([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])
    low, high = (found and found.interval) or (None, None)
    return None if found is None else Difference(found.mean, low, high, found.n)


def student(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    return float(stdtrit(freedom, (1 + _LEVEL) / 2))


Values = Mapping[int, float]
"""A metric by seed."""


@dataclass(frozen=True)
class Pooled:
    """The deviation between seeds, pooled over rows, and its degrees of freedom."""

    deviation: float
    freedom: int

    @classmethod
    def over(cls, rows: Sequence[Values]) -> "Pooled":
        """Return what is pooled over rows, one of them with two seeds at least."""
        freedom = sum(len(one) - 1 for one in rows)
        squares = sum((len(one) - 1) * variance(one.values()) for one in rows if len(one) > 1)
        return cls(sqrt(squares / freedom), freedom)

    def apart(self, ours: Values, theirs: Values) -> tuple[Difference, float]:
        """Return the difference of two means with its 95 % interval, and p, by Student's t; unpaired."""
        found = mean(ours.values()) - mean(theirs.values())
        error = self.deviation * sqrt(1 / len(ours) + 1 / len(theirs))
        half = student(self.freedom) * error
        chance = 2 * float(stdtr(self.freedom, -abs(found) / error)) if error else float(found == 0)
        return Difference(found, found - half, found + half, len(ours)), chance


def holm(chances: Mapping[T, float], level: float = 0.05) -> set[T]:
    """Return which are certain together: the smallest of n is below level / n, the next level / (n - 1)."""
    certain: set[T] = set()
    for place, name in enumerate(sorted(chances, key=chances.__getitem__)):
        if chances[name] > level / (len(chances) - place):
            break
        certain.add(name)
    return certain


@dataclass(frozen=True)
class Comparison:
    """What was found of row `ours` over row `theirs`; `certain` holds for all comparisons together."""

    ours: str
    theirs: str
    difference: Difference
    p: float
    certain: bool
    verdict: str


def compared(
    rows: Mapping[str, Values], pairs: Sequence[tuple[str, str]], smallest: float
) -> list[Comparison]:
    """Return comparisons of rows by their pooled deviation, certain by Holm, and judged by `smallest`.

    Better or worse is what is certain, with a whole interval beyond the smallest difference of interest.
    """
    pooled = Pooled.over(list(rows.values()))
    found = {pair: pooled.apart(rows[pair[0]], rows[pair[1]]) for pair in pairs}
    certain = holm({pair: p for pair, (_, p) in found.items()})
    return [
        Comparison(*pair, apart, p, pair in certain, _verdict(apart, smallest, certain=pair in certain))
        for pair, (apart, p) in found.items()
    ]


def _verdict(apart: Difference, smallest: float, *, certain: bool) -> str:
    assert apart.low is not None
    assert apart.high is not None
    if -smallest < apart.low and apart.high < smallest:
        return "no difference that matters"
    if certain and (apart.low > smallest or apart.high < -smallest):
        return "better" if apart.mean > 0 else "worse"
    return "undecided"


RATE = "learning_rate"
_ORDER = ("none", "svd", "tucker", "holistic")
_NAMES = {"real": "full precision", "none": "none", "svd": "SVD", "tucker": "Tucker", "tt": "TT"}


@dataclass(frozen=True)
class StudyView:
    """The rows of a study at one setting; where the learning rate is an axis, each at its own best one.

    `headline` is the metric by which they are compared, and what is meant where no other is named.
    """

    setting: Setting
    rows: Mapping[Row, Sequence[Training]]
    headline: str

    def values(self, row: Row, metric: str | None = None) -> dict[int, float]:
        """Return a final metric by seed."""
        found = {one.cell.seed: one.metric(metric or self.headline) for one in self.rows.get(row, ())}
        return {seed: value for seed, value in found.items() if value is not None}

    def sample(self, row: Row, metric: str | None = None) -> Sample | None:
        """Return mean and deviation over the seeds."""
        return sample(list(self.values(row, metric).values()))

    def difference(self, ours: Row, theirs: Row) -> Difference | None:
        """Return the paired difference of two rows."""
        return paired(self.values(ours), self.values(theirs))

    def chosen(self, row: Row) -> Mapping[str, Value]:
        """Return what was chosen for a row, nothing where there was no choice."""
        return next((training.chosen for training in self.rows[row]), {})


@dataclass(frozen=True)
class Claim:
    """Two rows for which the paper says that `ours` is better by `points`, or worse if negative."""

    ours: Row
    theirs: Row
    points: float
    found: Difference | None

    @property
    def agrees(self) -> bool:
        """Whether the measured difference has the paper's sign."""
        return self.found is not None and self.found.mean * self.points > 0

    @property
    def verdict(self) -> str:
        """What the measured difference says of the paper's."""
        if self.found is None:
            return "not measured"
        other = "other sign" if self.found.mean else "no difference"
        side = "sign as in the paper" if self.agrees else other
        if self.found.pairs == 1:
            return f"one seed, {side}"
        if self.found.sign == 0:
            return f"undecided, {side}"
        return "as in the paper" if self.agrees else "the other way round"


def views(study: Study) -> list[StudyView]:
    """Return a view for every combination of the axes beside latent, scale and learning rate."""
    settings = dict.fromkeys(without_rate(setting) for setting in study.settings())
    return [StudyView(setting, _best(study, setting), study.headline) for setting in settings]


def view_at(study: Study, setting: Setting) -> StudyView:
    """Return the rows at exactly one setting; a baseline for which an axis means nothing is in each."""
    rows = {row: _at(study, row, setting) for row in (*study.rows, REAL)}
    return StudyView(setting, rows, study.headline)


def with_value(view: StudyView, study: Study, axis: str, value: Value) -> StudyView:
    """Return the view at another value of an axis; of another axis than the learning rate, each row at its
    best rate there.
    """
    if axis == RATE:
        return view_at(study, (*view.setting, (axis, value)))
    setting = tuple((name, value if name == axis else old) for name, old in view.setting)
    return StudyView(setting, _best(study, setting), study.headline)


def claims(view: StudyView, study: Study) -> list[Claim]:
    """Return what the paper says of the rows of the study, with what was measured."""
    published = published_for(study.headline)
    return [
        Claim(ours, theirs, points, view.difference(ours, theirs))
        for ours, theirs in _compared(study)
        if (points := published.difference(ours, theirs)) is not None
    ]


def row_name(row: Sequence[str]) -> str:
    """Return a row's name for people."""
    return ", ".join(_NAMES.get(part, part) for part in row if part)


def setting_name(setting: Setting) -> str:
    """Return a setting's name for people."""
    return ", ".join(f"{axis_name(name)} {text_of(value)}" for name, value in setting)


def axis_name(name: str) -> str:
    """Return an axis' name for people."""
    return name.replace("_", " ")


def without_rate(setting: Setting) -> Setting:
    """Return a setting without its learning rate."""
    return tuple((name, value) for name, value in setting if name != RATE)


def _compared(study: Study) -> list[tuple[Row, Row]]:
    """Pairs to compare: each latent that the paper has a figure for over the one before, the last over the
    first, and learned alpha over analytic.
    """
    published = published_for(study.headline).figures
    pairs: list[tuple[Row, Row]] = []
    for scale in study.scales:
        rows = [Row(latent, scale) for latent in _ORDER if latent in study.latents]
        known = [row for row in rows if row in published]
        pairs += zip(known[1:], known, strict=False)
        pairs += [(known[-1], known[0])] if len(known) > 2 else []
    both = [latent for latent in _ORDER if latent in study.latents] if len(study.scales) > 1 else []
    return pairs + [(Row(latent, "learned"), Row(latent, "analytic")) for latent in both]


def _at(study: Study, row: Row, setting: Setting) -> Sequence[Training]:
    wanted = set(setting)
    return [one for one in study.trainings if one.cell.row == row and set(one.setting) <= wanted]


def _best(study: Study, setting: Setting) -> dict[Row, Sequence[Training]]:
    rates: list[Setting] = [((RATE, rate),) for rate in study.axes.get(RATE, ())] or [()]
    return {
        row: max((_at(study, row, (*setting, *rate)) for rate in rates), key=lambda at: _rank(at, study))
        for row in (*study.rows, REAL)
    }


def _rank(trainings: Sequence[Training], study: Study) -> tuple[int, float]:
    return rank([one.metric(study.headline) for one in trainings])
