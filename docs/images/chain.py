"""Draw what bitfactor does, from a float weight to a file that runs anywhere: python docs/images/chain.py

Writes chain-light.svg and chain-dark.svg beside itself. The weight is a matrix of rank 2 plus noise; its
decomposition is a singular value decomposition of rank 2.
"""

from functools import partial
from pathlib import Path

import numpy as np

SIDE, CELL = 8, 15
COLOURS = {
    "light": {"ink": "#1f2328", "soft": "#59636e", "line": "#8c959f", "one": "#1f2328", "none": "#ffffff"},
    "dark": {"ink": "#e6edf3", "soft": "#9198a1", "line": "#6e7681", "one": "#e6edf3", "none": "#0d1117"},
}
POSITIVE, NEGATIVE = np.array([46, 125, 196]), np.array([214, 96, 46])


def weight():
    """Return a weight, its factors of rank 2, and the sign of their product."""
    rng = np.random.default_rng(4)
    u, v = rng.standard_normal((SIDE, 2)), rng.standard_normal((2, SIDE))
    w = u @ v + 0.3 * rng.standard_normal((SIDE, SIDE))
    left, values, right = np.linalg.svd(w)
    factors = left[:, :2] * values[:2], right[:2]
    return w, factors, np.sign(factors[0] @ factors[1])


def shade(value, most):
    """Blue above zero, orange below, and pale near it."""
    share = min(abs(value) / most, 1)
    colour = (1 - share) * np.array([238, 240, 242]) + share * (POSITIVE if value > 0 else NEGATIVE)
    return "#" + "".join(f"{int(c):02x}" for c in colour)


class Drawing:
    """SVG, element by element."""

    def __init__(self, theme):
        self.theme, self.parts = COLOURS[theme], []

    def cells(self, matrix, x, y, fill):
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                self.parts.append(
                    f'<rect x="{x + j * CELL}" y="{y + i * CELL}" width="{CELL - 1}" height="{CELL - 1}" '
                    f'rx="2" fill="{fill(value)}" stroke="{self.theme["line"]}" stroke-width="0.5"/>'
                )

    def text(self, x, y, words, size=14, colour="ink", weight="normal"):
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{self.theme[colour]}" font-weight="{weight}" '
            f'text-anchor="middle">{words}</text>'
        )

    def arrow(self, x, y, to_x, to_y):
        self.parts.append(
            f'<path d="M{x} {y} L{to_x} {to_y}" stroke="{self.theme["soft"]}" stroke-width="2" fill="none" '
            'marker-end="url(#head)"/>'
        )

    def box(self, x, y, width, height):
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" '
            f'stroke="{self.theme["line"]}" stroke-width="1.5"/>'
        )

    def caption(self, x, title, words):
        self.text(x, 40, title, 16, weight="bold")
        for i, line in enumerate(words):
            self.text(x, 208 + 18 * i, line, 13, "soft")

    def svg(self, width, height):
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{self.theme["soft"]}"/></marker></defs>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="system-ui, sans-serif" role="img">'
            "<title>A float weight becomes factors, their product's signs, and a file of bits</title>"
            + head
            + "".join(self.parts)
            + "</svg>\n"
        )


def drawn(theme):
    w, (left, right), signs = weight()
    drawing = Drawing(theme)
    full, top = SIDE * CELL, 62

    def coloured(matrix):
        return partial(shade, most=abs(matrix).max())

    def black_or_white(value):
        return drawing.theme["one" if value > 0 else "none"]

    drawing.caption(90, "Float weight", ["32 bits each"])
    drawing.cells(w, 30, top, coloured(w))
    drawing.arrow(160, top + 60, 198, top + 60)

    drawing.caption(306, "Decomposition", ["the optimizer trains", "its factors"])
    drawing.cells(left, 212, top, coloured(left))
    drawing.text(256, top + 64, "×", 20)
    drawing.cells(right, 270, top + 45, coloured(right))
    drawing.arrow(400, top + 60, 438, top + 60)

    drawing.caption(512, "Sign", ["1 bit each, and", "a scale for each filter"])
    drawing.cells(signs, 452, top, black_or_white)
    drawing.arrow(582, top + 60, 620, top + 60)

    drawing.caption(694, "File", ["the factors are gone,", "net.safetensors"])
    drawing.box(634, top, full, full)
    for i, row in enumerate(signs):
        bits = "".join("1" if value > 0 else "0" for value in row)
        drawing.parts.append(
            f'<text x="694" y="{top + 16 + i * 13.6}" font-size="12" text-anchor="middle" '
            f'font-family="ui-monospace, monospace" fill="{drawing.theme["ink"]}">{bits}</text>'
        )
    for i, (title, words) in enumerate(
        [("Python", "numpy, no torch"), ("C, C99", "servers, microcontrollers"), ("Browser", "WebAssembly")]
    ):
        middle = top - 12 + i * 68
        drawing.arrow(764, top + 60, 812, middle + 8)
        drawing.box(820, middle - 18, 172, 54)
        drawing.text(906, middle + 4, title, 14, weight="bold")
        drawing.text(906, middle + 24, words, 12, "soft")
    return drawing.svg(1010, 240)


if __name__ == "__main__":
    for theme in COLOURS:
        Path(__file__).with_name(f"chain-{theme}.svg").write_text(drawn(theme))
