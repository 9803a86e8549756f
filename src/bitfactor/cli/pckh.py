"""`bitfactor pckh PREDICTIONS --truth TRUTH`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.poses import score_files
from bitfactor.cli.arguments import parse
from bitfactor.cli.output import call_and_print


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
    call_and_print(score_files, parse(Arguments, "pckh", arguments))
