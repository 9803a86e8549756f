"""Figures as SVG text, ready to stand in a page: those of a study, of runs and of single networks."""

import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from statistics import mean
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from bitfactor.decompositions import class_of
from bitfactor.study.statistics import Difference, row_name
from bitfactor.training.metrics.latents import Histogram

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

BLUE, ORANGE, RED = "#0b62a4", "#d9730d", "#b3261e"


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
    with _drawing(9, 2.5 * rows) as figure:
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
    """Draw images (N, H, W) or (N, H, W, 3) with the class found, in red, and the right one."""
    columns = min(12, len(images))
    rows = math.ceil(len(images) / columns)
    with _drawing(0.85 * columns, 1.15 * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        _hide(axes)
        for ax, image, answer, truth in zip(axes, images, found, expected, strict=False):
            ax.imshow(image, cmap="gray")
            ax.set_title(f"{answer}\n(is {truth})", color=RED, fontsize=7, pad=2, parse_math=False)
        return svg(figure)


def _hide(axes: Iterable[Axes]) -> None:
    for ax in axes:
        ax.axis("off")


Series = Sequence[tuple[float, float]]
"""Points (x, y) in the order of x."""

_ROW = 0.3  # height of a row, in inches
_MARK = "#374151"
_TITLE_LETTERS = 27  # that fit over the panel of a layer


def dots(rows: Mapping[str, tuple[str, Sequence[float]]], x_label: str, line: float | None) -> str:
    """Draw the values of each row, {name: (latent, values)}, their mean as a bar, and a vertical `line`."""
    with _drawing(6.4, 0.8 + _ROW * len(rows)) as figure:
        ax = figure.subplots()
        for place, (latent, values) in enumerate(rows.values()):
            look = look_of(latent)
            ax.plot(values, [place] * len(values), look.mark, color=look.colour, alpha=0.75, markersize=5)
            if values:
                ax.plot([mean(values)], [place], "|", color=look.colour, markersize=16, markeredgewidth=2)
        if line is not None:
            ax.axvline(line, color=REAL.colour, linestyle="--", linewidth=1)
            ax.annotate(
                "full precision",
                (line, -0.55),
                ha="right",
                va="center",
                color=REAL.colour,
                xytext=(-3, 0),
                textcoords="offset points",
            )
        _name_rows(ax, list(rows))
        ax.set_xlabel(x_label)
        return svg(figure)


def intervals(panels: Mapping[str, Mapping[str, tuple[str, Difference]]], x_label: str) -> str:
    """Draw differences and their intervals, a panel per baseline: {baseline: {row: (latent, difference)}}."""
    rows = max(len(panel) for panel in panels.values())
    with _drawing(4.6 * len(panels), 1.0 + _ROW * rows) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for ax, (title, panel) in zip(axes, panels.items(), strict=True):
            for place, (latent, found) in enumerate(panel.values()):
                look = look_of(latent)
                if found.low is not None and found.high is not None:
                    ax.plot(
                        [100 * found.low, 100 * found.high], [place] * 2, color=look.colour, linewidth=1.5
                    )
                ax.plot([100 * found.mean], [place], look.mark, color=look.colour, markersize=6)
            ax.axvline(0, color="#9ca3af", linewidth=1)
            ax.set_title(title, loc="left")
            ax.set_xlabel(x_label)
            _name_rows(ax, list(panel))
        return svg(figure)


def against(rows: Mapping[str, tuple[str, Series]], x_label: str, y_label: str) -> str:
    """Draw the points of each row, {name: (latent, points)}, small, and their mean, large.

    Of rows with the same latent, the first one's marks are hollow.
    """
    with _drawing(7.2, 3.6) as figure:
        ax = figure.subplots()
        latents = [latent for latent, _ in rows.values()]
        for number, (name, (latent, points)) in enumerate(rows.items()):
            look, (xs, ys) = look_of(latent), zip(*points, strict=True)
            filled: Literal["none", "full"] = "none" if latent in latents[number + 1 :] else "full"
            ax.plot(xs, ys, look.mark, color=look.colour, alpha=0.35, markersize=4, fillstyle=filled)
            mark: dict[str, Any] = {"markersize": 8, "fillstyle": filled, "label": name}
            ax.plot([mean(xs)], [mean(ys)], look.mark, color=look.colour, **mark)
        ax.set_xlim(0, 1.1 * max(x for _, points in rows.values() for x, _ in points))
        ax.set_xlabel(x_label)
        ax.set_ylabel(y_label)
        ax.grid(alpha=0.25)
        figure.legend(loc="outside right center", frameon=False)
        return svg(figure)


def front(rows: Mapping[str, tuple[str, float, float, tuple[float, float]]]) -> str:
    """Draw {name: (weights, milliseconds, accuracy, its interval)}: accuracy, in percent, against latency.

    A line joins those that no faster one equals.
    """
    best: list[tuple[float, float]] = []
    for _, time, accuracy, _ in sorted(rows.values(), key=lambda row: (row[1], -row[2])):
        if not best or 100 * accuracy > best[-1][1]:
            best.append((time, 100 * accuracy))
    with _drawing(7.2, 3.6) as figure:
        ax = figure.subplots()
        ax.plot(*zip(*best, strict=True), color="#6b7280", linewidth=1, zorder=0, gid="front")
        for name, (weights, time, accuracy, (low, high)) in rows.items():
            errors = [[100 * (accuracy - low)], [100 * (high - accuracy)]]
            mark = _MARKS[list(rows).index(name) % len(_MARKS)]
            colour = _WEIGHTS[weights]
            ax.errorbar(time, 100 * accuracy, errors, fmt=mark, color=colour, capsize=2, label=name)
        ax.set_xscale("log")
        _label_decades(ax.xaxis, (1, 2, 5))
        figure.legend(loc="outside right center", frameon=False)
        ax.set_xlabel("latency of one image, ms")
        ax.set_ylabel("accuracy, %")
        ax.grid(alpha=0.25)
        return svg(figure)


_WEIGHTS = {"1 bit": "#0072b2", "int8": "#d55e00", "float32": "#6b7280"}
_MARKS = "osD^vx"


def bands(
    rows: Mapping[str, Mapping[str, Mapping[str, Sequence[Series]]]],
    x_label: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """Draw the mean of series over the seeds and the band they span.

    Parameters
    ----------
    rows
        {label of y: {title of the panel: {latent: a series per seed}}}, with the same panels in each.
    """
    titles = list(next(iter(rows.values())))
    with _drawing(3.6 * len(titles) + 0.9, 2.5 * len(rows)) as figure:
        axes = figure.subplots(len(rows), len(titles), squeeze=False, sharex=True, sharey="row")
        for line, (y_label, panels) in zip(axes, rows.items(), strict=True):
            line[0].set_ylabel(y_label)
            for ax, title in zip(line, titles, strict=True):
                _draw_panel(ax, panels[title], marked=log_x)
                if log_y and isfinite(ax.dataLim.minposy):
                    ax.set_yscale("log")
                    _label_decades(ax.yaxis, (1, 2, 5))
                if log_x:
                    ax.set_xscale("log")
                    _label_decades(ax.xaxis, (1, 2, 3, 5))
                else:
                    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_title(title, loc="left")
        for ax in axes[-1]:
            ax.set_xlabel(x_label)
        named = {str(line.get_label()): line for ax in axes.ravel() for line in ax.get_lines()}
        figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)
        return svg(figure)


def curves(panels: Mapping[str, Mapping[str, Series]], x_label: str) -> str:
    """Draw panels side by side, {label of y: {name of the line: points}}."""
    with _drawing(4.2 * len(panels), 2.8) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for ax, (y_label, lines) in zip(axes, panels.items(), strict=True):
            for name, points in lines.items():
                colour, (x, y) = BLUE if name == "training" else ORANGE, zip(*points, strict=True)
                ax.plot(x, y, color=colour, label=name, linewidth=1.5, marker="o" if len(x) == 1 else None)
            ax.set_xlabel(x_label)
            ax.set_ylabel(y_label)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.grid(alpha=0.25)
            ax.legend(frameon=False)
        return svg(figure)


def distributions(
    rows: Mapping[str, tuple[str, Mapping[str, Histogram]]], x_label: str, marks: Sequence[float]
) -> str:
    """Draw histograms, a row per entry and a column per layer: {name: (latent, {layer: histogram})}.

    Counts beyond the edges are not drawn; `marks` are vertical lines where there are values.
    """
    columns = max(len(layers) for _, layers in rows.values())
    with _drawing(2.1 * columns + 0.6, 1.55 * len(rows) + 0.3) as figure:
        axes = figure.subplots(len(rows), columns, squeeze=False, sharex="col")
        for line, (name, (latent, layers)) in zip(axes, rows.items(), strict=True):
            line[0].set_ylabel(name)
            for ax, found in zip(line, layers.values(), strict=True):
                ax.stairs(found.counts, found.edges, fill=True, color=look_of(latent).colour, alpha=0.85)
                for mark in (mark for mark in marks if found.edges[0] <= mark <= found.edges[-1]):
                    ax.axvline(mark, color=_MARK, linewidth=0.8, linestyle="--")
                ax.set_yticks([])
        for ax, layer in zip(axes[0], next(iter(rows.values()))[1], strict=True):
            ax.set_title(_end_of(layer), loc="left", fontsize=8)
        figure.supxlabel(x_label, fontsize=9)
        figure.supylabel("count", fontsize=9)
        return svg(figure)


def spectra(rows: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> str:
    """Draw singular values by the largest, over their place: {latent: {layer: {factor: values}}}."""
    columns = max(len(layers) for layers in rows.values())
    with _drawing(2.3 * columns + 1.2, 1.9 * len(rows) + 0.3) as figure:
        axes = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey="row")
        for line, (latent, layers) in zip(axes, rows.items(), strict=True):
            line[0].set_ylabel(latent)
            drawn, empty = line[: len(layers)], line[len(layers) :]
            for ax, (layer, factors) in zip(drawn, layers.items(), strict=True):
                _draw_spectra(ax, factors)
                ax.set_title(_end_of(layer), loc="left", fontsize=8)
            _hide(empty)
            beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
            drawn[-1].legend(frameon=False, fontsize=7, **beside).set_in_layout(not len(empty))
        figure.supxlabel("place of the singular value, from the largest (0) to the smallest (1)", fontsize=9)
        return svg(figure)


def _end_of(layer: str) -> str:
    """Return as much of the name of a layer as fits over its panel."""
    return layer if len(layer) <= _TITLE_LETTERS else f"…{layer[1 - _TITLE_LETTERS :]}"


def _draw_spectra(ax: Axes, factors: Mapping[str, Sequence[float]]) -> None:
    for shade, (name, values) in zip(np.linspace(0, 0.9, len(factors)), factors.items(), strict=True):
        x = np.linspace(0, 1, len(values))
        colour = matplotlib.colormaps["viridis"](shade)
        ax.plot(x, np.array(values) / max(values), color=colour, label=name, linewidth=1.2)
    ax.set_yscale("log")
    _label_decades(ax.yaxis, (1, 2, 5))
    ax.grid(alpha=0.25)


def _draw_panel(ax: Axes, lines: Mapping[str, Sequence[Series]], *, marked: bool) -> None:
    for latent, seeds in lines.items():
        look, (x, low, middle, high) = look_of(latent), _spread(seeds)
        mark = look.mark if marked or len(x) == 1 else ""
        ax.plot(
            x,
            middle,
            look.line,
            color=look.colour,
            marker=mark,
            markersize=5,
            label=row_name([latent]),
            linewidth=1.5,
        )
        if len(seeds) > 1:
            ax.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
    ax.grid(alpha=0.25)


def _label_decades(axis: Axis, digits: Sequence[float]) -> None:
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _spread(seeds: Sequence[Series]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return x and the lowest, mean and highest y where a series has a point."""
    found: dict[float, list[float]] = {}
    for x, y in (point for series in seeds for point in series):
        found.setdefault(x, []).append(y)
    ys = [values for _, values in sorted(found.items())]
    return sorted(found), [min(y) for y in ys], [mean(y) for y in ys], [max(y) for y in ys]


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.9)
    ax.grid(axis="x", alpha=0.25)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


@contextmanager
def _drawing(width: float, height: float) -> Iterator[Figure]:
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")
