"""The flags of `bitfactor evaluate`, which hold for every task."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Arguments:
    """Measure on the held-out data: a run in torch, or an exported file in the runtime."""

    path: tyro.conf.Positional[Path]
    """Directory of a run, or exported file."""
    data: Path | None = None
    """Directory of the data, for recipes that need one."""
    limit: int | None = None
    """Measure on at most about this many pictures."""
    best: bool = False
    """Of a run: take the checkpoint of its best epoch in place of the last."""
    confusion: Path | None = None
    """Classification: also draw the confusion matrix, as a PNG or SVG file."""
    page: Path | None = None
    """Poses: also write a page with the people found best and worst, an HTML file."""
    flip: bool = False
    """Poses: average the heatmaps with those of the mirrored picture."""
    json: bool = False
    """Print JSON."""
