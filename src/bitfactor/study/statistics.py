"""Means over seeds, and paired differences with their confidence interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from scipy.special import stdtrit

_LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation (of a sample, n - 1) of `n` fractions; one value has no deviation."""

    mean: float
    std: float | None
    n: int

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
    """Return a difference of fractions in points, with its sign.

    >>> points(-0.0123)
    '−1.23'
    """
    return f"{100 * fraction:+.2f}".replace("-", "−")


def sample(values: Sequence[float]) -> Sample | None:
    """Return mean and deviation, None of nothing.

    >>> str(sample([0.5, 0.7]))
    '60.00 ± 14.14'
    """
    if not values:
        return None
    return Sample(mean(values), stdev(values) if len(values) > 1 else None, len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Return the mean of ours minus theirs over the seeds that both have, None where they have none.

    The interval is Student's: mean +- t(0.975, n - 1) s / sqrt(n), for differences that are normal.

    >>> str(paired({0: 0.62, 1: 0.60}, {0: 0.58, 1: 0.58}))
    '+3.00 [−9.71, +15.71]'
    """
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not differences:
        return None
    centre, n = mean(differences), len(differences)
    if n == 1:
        return Difference(centre, None, None, 1)
    half = student(n - 1) * stdev(differences) / sqrt(n)
    return Difference(centre, centre - half, centre + half, n)


def student(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t.

    >>> round(student(1), 3)
    12.706
    """
    return float(stdtrit(freedom, (1 + _LEVEL) / 2))
