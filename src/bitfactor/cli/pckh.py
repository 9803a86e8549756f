"""`bitfactor pckh PREDICTIONS --truth TRUTH`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.scores import score_document, score_table
from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json
from bitfactor.pose.mpii import read_truth
from bitfactor.pose.pck import pckh, score
from bitfactor.pose.predictions import read_predictions


@dataclass(frozen=True)
class Arguments:
    """Score predicted joints of MPII's validation set: PCKh at 0.5 and 0.1, in three means."""

    predictions: tyro.conf.Positional[Path]
    """Predictions as published: a .mat, .h5 or .json file with joints (N, 16, 2) or (2, 16, N), in pixels
    that count from 1 as MPII's do."""
    truth: Path
    """detections_our_format.mat, as published with the split of Tompson et al. (HRNet: gt_valid.mat)."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the fraction of joints found, per group of joints and over all."""
    options = parse(Arguments, "pckh", arguments)
    truth = read_truth(options.truth)
    predicted = read_predictions(options.predictions)
    found = score(predicted, truth.keypoints, truth.labelled, truth.norm, pckh(), options.predictions)
    if options.json:
        described = {"predictions": str(options.predictions), "truth": str(options.truth)}
        print_json({**described, "instances": len(predicted), **score_document(found)})
        return
    print(score_table(found))
    print(f"{len(predicted):,} instances; a joint counts as found within 0.5 (0.1) of the head's size")
