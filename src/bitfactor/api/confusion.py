"""The confusion matrix of an evaluation, as a drawing; needs matplotlib and no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bitfactor.common.files import replacing

_NAMED = 40  # classes whose names can be read
_WRITTEN = 20  # classes whose counts can be read


def draw_confusion(counts: NDArray[np.int64], labels: Sequence[str], path: Path) -> None:
    """Draw counts (C, C) of images by (class expected, class found), a row's colours as fractions of it.

    `path` ends in .png or .svg.
    """
    kind = path.suffix.lower().lstrip(".")
    fractions = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = 2.0 + 0.42 * min(len(labels), _WRITTEN)
    with matplotlib.rc_context({"font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "bitfactor"}):
        figure = Figure(figsize=(side + 0.8, side), layout="constrained", dpi=150)
        ax = figure.subplots()
        image = ax.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
        bar = figure.colorbar(image, ax=ax, shrink=0.8, label="fraction of the class")
        bar.outline.set_visible(False)
        ax.set_xlabel("class found")
        ax.set_ylabel("class expected")
        _name(ax, labels)
        if len(labels) <= _WRITTEN:
            _write(ax, counts, fractions)
        with replacing(path) as temporary:
            figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _name(ax: Any, labels: Sequence[str]) -> None:
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if len(labels) > _NAMED:
        return
    ax.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 2 else 0)
    ax.set_yticks(range(len(labels)), labels)


def _write(ax: Any, counts: NDArray[np.int64], fractions: NDArray[np.float64]) -> None:
    for row, column in np.argwhere(counts):
        colour = "white" if fractions[row, column] > 0.5 else "#374151"
        ax.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=colour)
