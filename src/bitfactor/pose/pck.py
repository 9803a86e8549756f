"""Percentage of correct keypoints: how many of the labelled joints were found, within a fraction of a length.

A joint is found if its distance from the truth is at most `threshold` times the person's `norm`. Joints that
are labelled count, hidden ones too. A prediction that is not finite is wrong. A person whose norm is unknown
or 0 is left out.

Three means over the joints are in print, and differ by more than one point for the same predictions:

- plain: the mean of the joints' rates (pytorch-pose);
- weighted: the fraction of all joints that are right, that is each joint's rate by how often it is labelled
  (HRNet, mmpose);
- pooled: the same over all 16 joints of MPII (pytorch_stacked_hourglass). The other two leave out pelvis and
  thorax.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_array
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton, sided
from bitfactor.common.result import text_table
from bitfactor.pose.skeletons import LSP, MPII

MEANS = ("plain", "weighted", "pooled")


@dataclass(frozen=True)
class Convention:
    """What is counted.

    Parameters
    ----------
    name
        "PCKh" if the norm is the size of the head, "PCK" if it is another length.
    thresholds
        Shares of the norm; the first is the one by which networks are compared.
    groups
        Names of groups, and the joints whose rates are averaged there.
    averaged
        The joints of the plain and the weighted mean.
    """

    name: str
    thresholds: tuple[float, ...]
    groups: Mapping[str, tuple[int, ...]]
    averaged: tuple[int, ...]


@checked
def pckh(skeleton: Skeleton = MPII) -> Convention:
    """Return PCKh: 0.5 and 0.1 of the head's size, without pelvis and thorax in two of the means."""
    averaged = tuple(i for i, name in enumerate(skeleton.keypoints) if name not in ("pelvis", "thorax"))
    return Convention("PCKh", (0.5, 0.1), groups_of(skeleton), averaged)


@checked
def pck(skeleton: Skeleton = LSP) -> Convention:
    """Return PCK: 0.2 and 0.1 of the norm, which is the torso's length in LSP; all joints in all means."""
    return Convention("PCK", (0.2, 0.1), groups_of(skeleton), tuple(range(len(skeleton.keypoints))))


def groups_of(skeleton: Skeleton) -> dict[str, tuple[int, ...]]:
    """Return the groups of joints for a table; both sides of a joint are one group."""
    if skeleton in (MPII, LSP):
        head = ("head_top",) if skeleton == MPII else ("neck", "head_top")
        groups = {"Head": tuple(skeleton.keypoints.index(name) for name in head)}
        for part in ("shoulder", "elbow", "wrist", "hip", "knee", "ankle"):
            groups[part.capitalize()] = tuple(i for i, n in enumerate(skeleton.keypoints) if n.endswith(part))
        return groups
    groups = {}
    partner = skeleton.flipped
    for i, name in enumerate(skeleton.keypoints):
        if partner[i] == i:
            groups[name] = (i,)
        elif i < partner[i]:
            groups["_".join(sided(name)[1]) if sided(name)[0] else name] = (i, partner[i])
    return groups


@dataclass(frozen=True)
class Score:
    """How many joints were found: `correct` (T, J) at each of T thresholds, of `labelled` (J,)."""

    convention: Convention
    correct: NDArray[np.int64]
    labelled: NDArray[np.int64]

    def rates(self) -> NDArray[np.float64]:
        """Return the fraction found of each joint at each threshold, (T, J); NaN for one never labelled."""
        with np.errstate(invalid="ignore"):
            return self.correct / self.labelled

    def groups(self) -> dict[str, list[float]]:
        """Return group -> the plain mean of its joints' rates, at each threshold."""
        rates = self.rates()
        return {name: _mean(rates[:, list(joints)]) for name, joints in self.convention.groups.items()}

    def means(self) -> dict[str, list[float]]:
        """Return the three means by name, each at each threshold; NaN if nothing is labelled."""
        averaged = list(self.convention.averaged)
        return {
            "plain": _mean(self.rates()[:, averaged]),
            "weighted": _fraction(self.correct[:, averaged], self.labelled[averaged]),
            "pooled": _fraction(self.correct, self.labelled),
        }


@checked
def score(
    predicted: NDArray[np.floating],
    true: NDArray[np.floating],
    labelled: NDArray[np.bool_],
    norm: NDArray[np.floating],
    convention: Convention,
    where: object = "predictions",
) -> Score:
    """Compare predicted with true joints, (N, J, 2) both, where `labelled` (N, J), by the `norm` (N,).

    `where` names the predictions in an error.
    """
    if predicted.shape != true.shape or true.ndim != 3 or true.shape[2] != 2:
        raise InputError(
            where,
            expected=f"joints of shape {true.shape}, as the truth has",
            found=f"shape {predicted.shape}",
            fix="give the predictions for the same instances and joints",
        )
    expect_array("score(labelled)", labelled, true.shape[:2], "bfiu")
    expect_array("score(norm)", norm, true.shape[:1])
    norm = np.asarray(norm, np.float64)
    measurable = np.isfinite(norm) & (norm > 0)
    counted = np.asarray(labelled, bool) & measurable[:, None]
    with np.errstate(invalid="ignore"):
        distance = np.linalg.norm(np.asarray(predicted, np.float64) - true, axis=2)
        fraction = distance / np.where(measurable, norm, 1)[:, None]
        correct = [((fraction <= threshold) & counted).sum(0) for threshold in convention.thresholds]
    return Score(convention, np.stack(correct), counted.sum(0))


def score_table(found: Score) -> str:
    """Return a table: a row per group of joints and per mean, a column per threshold, in per cent."""
    convention = found.convention
    means = {mean_name(found, mean): values for mean, values in found.means().items()}
    rows = [[name, *map(_percent, values)] for name, values in {**found.groups(), **means}.items()]
    head = [convention.name, *(f"@{threshold}" for threshold in convention.thresholds)]
    return text_table(head, rows, right=frozenset(range(1, len(head))))


def mean_name(found: Score, mean: str) -> str:
    """Return the name of one of the means, with the number of joints in it."""
    count = len(found.labelled) if mean == "pooled" else len(found.convention.averaged)
    return {"plain": f"plain mean of {count}", "weighted": f"weighted mean of {count}"}.get(
        mean, f"pooled over {count}"
    )


def score_document(found: Score) -> dict[str, Any]:
    """Return all of a score as JSON can hold it: fractions from 0 to 1, null where nothing was labelled."""
    groups, means = found.groups(), found.means()
    thresholds = {
        str(threshold): {
            "groups": {name: _number(values[i]) for name, values in groups.items()},
            "joints": [_number(rate) for rate in found.rates()[i]],
            "means": {name: _number(means[name][i]) for name in MEANS},
        }
        for i, threshold in enumerate(found.convention.thresholds)
    }
    return {"labelled": found.labelled.tolist(), found.convention.name.lower(): thresholds}


def _mean(rates: NDArray[np.float64]) -> list[float]:
    """Rates (T, n) -> T means over those that are numbers."""
    known = rates[:, ~np.isnan(rates[0])]
    return [float(mean) for mean in known.mean(1)] if known.size else [float("nan")] * len(rates)


def _fraction(correct: NDArray[np.int64], labelled: NDArray[np.int64]) -> list[float]:
    total = int(labelled.sum())
    return [float(c) / total if total else float("nan") for c in correct.sum(1)]


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
