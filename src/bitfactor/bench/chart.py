"""A bar chart of engines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitfactor.atomic import replacing
from bitfactor.errors import InputError, imported

OURS, OTHERS = "#2563eb", "#9ca3af"
SUFFIXES = (".png", ".svg")


def expect_chart(path: Path) -> None:
    """Raise InputError where `path` is no image that `draw` writes, or matplotlib is not installed."""
    if path.suffix not in SUFFIXES:
        raise InputError("--chart", expected="a file .png or .svg", found=str(path), fix="rename it")
    imported("matplotlib", "--chart", "bench")


def draw(engines: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw the median time of each engine, ours first, as bars with the ratio to ours; write it to `path`."""
    from matplotlib.figure import Figure

    medians = [engine["median_ms"] for engine in engines]
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(engines)), layout="constrained")
    axes = figure.subplots()
    colours = [OURS] + [OTHERS] * (len(engines) - 1)
    bars = axes.barh([engine["name"] for engine in engines], medians, color=colours)
    labels = [f" {median:.2f} ms" for median in medians[:1]]
    labels += [f" {median:.2f} ms, {median / medians[0]:.1f}x ours" for median in medians[1:]]
    axes.bar_label(bars, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.5 * max(medians))
    axes.set_xlabel("median milliseconds")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
