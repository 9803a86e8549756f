"""Figures as SVG text, ready to stand in a page, and the confusion matrix as a file of its own."""

import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bitfactor.decompositions import class_of

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


REAL = Look("#6b7280", "x", "--")


def look_of(latent: str) -> Look:
    """Return how figures draw a latent, or `real` networks.

    Colours are Okabe and Ito's, which the colour-blind can tell apart; marks do where there is no colour.
    """
    return REAL if latent == "real" else Look(*class_of(latent).look)


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
