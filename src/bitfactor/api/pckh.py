"""Scores of joints, as tables and as plain types, and those of a file of predictions; needs no torch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitfactor.common.result import Result, text_table
from bitfactor.data.readers.mpii import read_predictions, read_truth
from bitfactor.pose.pck import MEANS, Score, pckh, score


@dataclass(frozen=True)
class PublishedScore(Result):
    """PCKh of a file of predictions, of so many instances."""

    predictions: Path
    truth: Path
    instances: int
    score: Score

    def to_dict(self) -> dict[str, Any]:
        described = {"predictions": str(self.predictions), "truth": str(self.truth)}
        return {**described, "instances": self.instances, **score_document(self.score)}

    def __str__(self) -> str:
        return (
            f"{score_table(self.score)}\n"
            f"{self.instances:,} instances; a joint counts as found within 0.5 (0.1) of the head's size"
        )


def score_files(predictions: Path, *, truth: Path) -> PublishedScore:
    """Score predicted joints of MPII's validation set: PCKh at 0.5 and 0.1, in three means.

    Parameters
    ----------
    predictions
        Predictions as published: a .mat, .h5 or .json file with joints (N, 16, 2) or (2, 16, N). Pixels count
        from 1, as MPII's do.
    truth
        detections_our_format.mat, as published with the split of Tompson et al. (HRNet: gt_valid.mat).
    """
    true, predicted = read_truth(truth), read_predictions(predictions)
    found = score(predicted, true.keypoints, true.labelled, true.norm, pckh(), predictions)
    return PublishedScore(predictions, truth, len(predicted), found)


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


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
