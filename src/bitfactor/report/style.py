"""How the figures look: one typeface, and one colour and mark for each latent through all of them."""

import io
from typing import Any, NamedTuple

from matplotlib.figure import Figure

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
}
"""Okabe and Ito's palette, which the colour-blind can tell apart; the marks do where there is no colour."""

OTHER = Look("#6b7280", "o")


def svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG element."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
