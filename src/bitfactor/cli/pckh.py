"""`bitfactor pckh PREDICTIONS --truth TRUTH`: needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_table
from bitfactor.pose.pck import MEANS, Score, pckh, score
from bitfactor.pose.predictions import read_predictions
from bitfactor.pose.truth import read_truth


@dataclass(frozen=True)
class Arguments:
    """Score predicted joints of MPII's validation people: PCKh at 0.5 and 0.1, in three means."""

    predictions: tyro.conf.Positional[Path]
    """Predictions as published: a .mat, .h5 or .json file with joints (N, 16, 2) or (2, 16, N), in pixels
    that count from 1 as MPII's do."""
    truth: Path
    """detections_our_format.mat, as published with the split of Tompson et al. (HRNet: gt_valid.mat)."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the share of joints found, per group of joints and over all."""
    options = parse(Arguments, "pckh", arguments)
    truth = read_truth(options.truth)
    predicted = read_predictions(options.predictions)
    found = score(predicted, truth.joints, truth.labelled, truth.norm, pckh(), options.predictions)
    if options.json:
        described = {"predictions": str(options.predictions), "truth": str(options.truth)}
        print_json({**described, "people": len(predicted), **score_document(found)})
        return
    print_score(found)
    print(f"{len(predicted):,} people; a joint counts as found within 0.5 (0.1) of the head's size")


def print_score(found: Score) -> None:
    """Print a table: a row per group of joints and per mean, a column per threshold, in per cent."""
    convention = found.convention
    means = {mean_name(found, mean): values for mean, values in found.means().items()}
    rows = [(name, *map(_percent, values)) for name, values in {**found.groups(), **means}.items()]
    print_table((convention.name, *(f"@{threshold}" for threshold in convention.thresholds)), rows)


def mean_name(found: Score, mean: str) -> str:
    """Return the name of one of the means, with the number of joints in it."""
    count = len(found.labelled) if mean == "pooled" else len(found.convention.averaged)
    return {"plain": f"plain mean of {count}", "weighted": f"weighted mean of {count}"}.get(
        mean, f"pooled over {count}"
    )


def score_document(found: Score) -> dict[str, Any]:
    """Return all of a score as JSON can hold it: shares from 0 to 1, null where nothing was labelled."""
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
