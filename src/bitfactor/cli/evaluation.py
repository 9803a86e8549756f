"""The flags of `bitfactor evaluate`, which hold for every task."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.cli.arguments import Network
from bitfactor.errors import InputError


@dataclass(frozen=True)
class Arguments:
    """Measure on the held-out data: a run in torch, or an exported file in the runtime."""

    path: tyro.conf.Positional[Network]
    """Directory of a run, exported file, or a network of `bitfactor zoo`."""
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

    def expect_unset(self, *names: str, wanted: str) -> None:
        """Raise InputError where a flag of another task is given; `wanted` says what it is for."""
        for name in names:
            if getattr(self, name):
                raise InputError(
                    f"--{name}", expected=wanted, found="one for another task", fix="leave it out"
                )
