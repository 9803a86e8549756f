"""Figures as SVG text, ready to stand in a page, and the confusion matrix as a file of its own."""

import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.files import replacing

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": "#9ca3af",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "bitfactor",
}


class Look(NamedTuple):
    """Colour, mark and line of what is drawn."""

    colour: str
    mark: str
    line: str = "-"


LOOKS = {
    "real": Look("#6b7280", "x", "--"),
    "none": Look("#222222", "o"),
    "svd": Look("#e69f00", "s"),
    "tucker": Look("#0072b2", "^"),
    "holistic": Look("#d55e00", "D"),
    "product": Look("#009e73", "v"),
    "cp": Look("#cc79a7", "P"),
    "tt": Look("#56b4e9", "X"),
    "shared": Look("#8c6d31", "*"),
    "cosine": Look("#7b3294", "h"),
    "window": Look("#b2182b", "p"),
}
"""Okabe and Ito's palette, which the colour-blind can tell apart; the marks do where there is no colour."""

OTHER = Look("#6b7280", "o")


def svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG element."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


Array = NDArray[Any]

BLUE, ORANGE, RED, GREY = "#0b62a4", "#d9730d", "#b3261e", "#6b7280"


def by_depth(
    measures: Mapping[str, Mapping[str, Sequence[float]]],
    x: Sequence[float],
    x_label: str,
    log: Collection[str] = (),
) -> str:
    """Draw a panel for each measure, {title: {layer: values}}, three to a row.

    Layers go from dark, the first, to light, the last; the titles in `log` have a logarithmic axis.
    """
    rows = math.ceil(len(measures) / 3)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 2.5 * rows), layout="constrained")
        axes = figure.subplots(rows, 3, squeeze=False).ravel()
        for ax, (title, layers) in zip(axes, measures.items(), strict=False):
            shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(layers)))
            for shade, values in zip(shades, layers.values(), strict=True):
                ax.plot(x, values, color=shade, linewidth=1, marker="o" if len(x) == 1 else None)
            ax.set_title(title, loc="left")
            ax.set_xlabel(x_label)
            if title in log:
                ax.set_yscale("log", nonpositive="mask")
            ax.grid(alpha=0.25)
        _hide(axes[len(measures) :])
        return svg(figure)


def gallery(images: Array, found: Sequence[str], expected: Sequence[str]) -> str:
    """Draw images (N, H, W) or (N, H, W, 3) with the class found; wrong ones in red, with the right."""
    columns = min(12, len(images))
    rows = math.ceil(len(images) / columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(0.85 * columns, 1.15 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        _hide(axes)
        for ax, image, answer, truth in zip(axes, images, found, expected, strict=False):
            ax.imshow(image, cmap="gray")
            right = answer == truth
            ax.set_title(
                answer if right else f"{answer}\n(is {truth})",
                color="black" if right else RED,
                fontsize=7,
                pad=2,
            )
        return svg(figure)


def _hide(axes: Iterable[Axes]) -> None:
    for ax in axes:
        ax.axis("off")


_FORMATS = ("png", "svg")
_NAMED = 40  # classes whose names can be read
_WRITTEN = 20  # classes whose counts can be read


def draw_confusion(counts: NDArray[np.int64], labels: Sequence[str], path: Path) -> None:
    """Draw counts (C, C) of images by (class expected, class found); a row's colours are fractions of it."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in _FORMATS:
        raise InputError(path, expected="a name that ends in .png or .svg", found=path.name, fix="rename it")
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
