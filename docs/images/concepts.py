"""Draw the concepts: python docs/images/concepts.py

Writes sign.svg, svd.svg, tucker.svg, bank.svg, window.svg and scale.svg beside itself. Each fits light and
dark pages. Values are real: factors are those of the weight that is drawn.
"""

from functools import partial
from pathlib import Path

import numpy as np
from chain import shade

CELL = 15
STYLE = (
    "<style>text{font-family:system-ui,sans-serif;text-anchor:middle;fill:#1f2328}.soft{fill:#59636e}"
    ".line{stroke:#8c959f;fill:none}.one{fill:#1f2328;stroke:#8c959f}.none{fill:#fff;stroke:#8c959f}"
    ".curve{stroke:#2e7dc4;fill:none;stroke-width:2.5}.other{stroke:#d6602e;fill:none;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}"
    ".one{fill:#e6edf3}.none{fill:#0d1117}}</style>"
)


def page(width, height, title, *parts):
    """An SVG of this size."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{title}</title>'
    return head + STYLE + "".join(parts) + "</svg>\n"


def text(x, y, words, size=14, kind=""):
    return f'<text x="{x}" y="{y}" font-size="{size}" class="{kind}">{words}</text>'


def cells(matrix, x, y, *, cell=CELL, most=None):
    """Values as colours: blue above zero, orange below."""
    fill = partial(shade, most=most or abs(matrix).max())
    return "".join(
        f'<rect x="{x + j * cell}" y="{y + i * cell}" width="{cell - 1}" height="{cell - 1}" rx="2" '
        f'fill="{fill(value)}" stroke="#8c959f" stroke-width="0.5"/>'
        for (i, j), value in np.ndenumerate(matrix)
    )


def bits(matrix, x, y, cell=CELL):
    """Signs as black and white."""
    return "".join(
        f'<rect x="{x + j * cell}" y="{y + i * cell}" width="{cell - 1}" height="{cell - 1}" rx="2" '
        f'class="{"one" if value > 0 else "none"}" stroke-width="0.5"/>'
        for (i, j), value in np.ndenumerate(matrix)
    )


def stack(slices, x, y, step=9):
    """Slices of a tensor, one behind the other; the first is in front."""
    most = max(abs(one).max() for one in slices)
    back = list(enumerate(slices))[::-1]
    return "".join(cells(one, x + step * k, y - step * k, most=most) for k, one in back)


def curve(points, x, y, kind, unit=34):
    """A line through points (a, b), with the origin at x, y."""
    path = " ".join(f"{x + unit * a:.1f},{y - unit * b:.1f}" for a, b in points)
    return f'<polyline points="{path}" class="{kind}"/>'


def axes(x, y, unit=34):
    path = f"M{x - 2.2 * unit} {y} H{x + 2.2 * unit} M{x} {y + 1.5 * unit} V{y - 2.2 * unit}"
    marks = text(x - unit, y + 16, "-1", 12, "soft") + text(x + unit, y + 16, "1", 12, "soft")
    return f'<path d="{path}" class="line"/>' + marks


def sign():
    step = [(-2, -1), (0, -1), (0, 1), (2, 1)]
    clipped = [(-2, 0), (-1, 0), (-1, 1), (1, 1), (1, 0), (2, 0)]
    polynomial = [(-2, 0), (-1, 0), (0, 2), (1, 0), (2, 0)]
    left, right = (axes(x, 120) for x in (120, 420))
    return page(
        560, 200, "The sign, and two gradients that stand for its own",
        left, curve(step, 120, 120, "curve"), text(120, 24, "forward: sign(x)"),
        right, curve(clipped, 420, 120, "curve"), curve(polynomial, 420, 120, "other"),
        text(420, 24, "backward: the gradient"),
        text(500, 80, "clipped", 12, "soft"), text(492, 58, "polynomial", 12, "soft"),
    )  # fmt: skip


def svd():
    rng = np.random.default_rng(4)
    u, s, vt = np.linalg.svd(rng.standard_normal((8, 8)))
    W = (u * s) @ vt
    return page(
        680, 190, "A weight as a product of three matrices, and its sign",
        bits(np.sign(W), 20, 40), text(80, 24, "sign(W)"), text(170, 106, "sign of", 14),
        cells(u, 200, 40), text(260, 24, "U"), cells(np.diag(s), 360, 40), text(420, 24, "diag(s)"),
        cells(vt, 520, 40), text(580, 24, "Vt"),
        text(400, 182, "what the optimizer trains", 12, "soft"),
        text(80, 182, "what the file holds", 12, "soft"),
    )  # fmt: skip


def tucker():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((6, 6, 3))
    factors = [np.linalg.svd(np.moveaxis(W, n, 0).reshape(W.shape[n], -1))[0] for n in range(3)]
    core = np.einsum("abc,ai,bj,ck->ijk", W, *factors)
    slices, of_core = ([tensor[:, :, k] for k in range(3)] for tensor in (W, core))
    return page(
        680, 190, "A weight as a core and a factor for each mode",
        stack(slices, 30, 60), text(86, 24, "W"), text(180, 106, "=", 16),
        stack(of_core, 220, 60), text(276, 24, "core"),
        cells(factors[0], 370, 60), text(415, 24, "U of outputs"),
        cells(factors[1], 490, 60), text(535, 24, "U of inputs"),
        cells(factors[2], 610, 60), text(632, 24, "U of taps"),
        text(340, 182, "a convolution has four modes: outputs, inputs, rows and columns", 12, "soft"),
    )  # fmt: skip


def bank():
    rng = np.random.default_rng(6)
    layers = rng.standard_normal((3, 6, 6))
    place = np.linalg.svd(layers.reshape(3, -1))[0]
    core = np.einsum("abc,ai->ibc", layers, place)
    each = [
        cells(one, 20, 46 + 108 * k) + text(66, 40 + 108 * k, f"W of layer {k + 1}", 12)
        for k, one in enumerate(layers)
    ]
    rows = [cells(place[k : k + 1], 150, 84 + 108 * k, most=1) for k in range(3)]
    return page(
        640, 370, "Three layers of one shape share a core and factors",
        *each, *rows, text(172, 40, "a row each", 12, "soft"),
        text(240, 200, "of", 14, "soft"), cells(place, 270, 172), text(292, 160, "U of layers"),
        text(350, 200, "times", 14, "soft"), stack(list(core), 400, 160), text(456, 128, "one core"),
        text(560, 200, "and the factors", 12, "soft"), text(560, 218, "of each mode", 12, "soft"),
    )  # fmt: skip


def window():
    cosines = np.array([np.cos(np.pi / 3 * (np.arange(3) + 0.5) * k) for k in range(3)])
    cosines /= np.linalg.norm(cosines, axis=1, keepdims=True)
    patterns = [np.outer(a, b) for a in cosines for b in cosines]
    weights = np.array([1.2, -0.8, 0.3, 0.9, -0.4, 0.2, -0.6, 0.3, -0.1])
    W = sum(w * p for w, p in zip(weights, patterns, strict=True))
    parts = [
        cells(p, 170 + 62 * k, 66, most=1) + text(192 + 62 * k, 56, f"{w:+.1f}", 12)
        for k, (w, p) in enumerate(zip(weights, patterns, strict=True))
    ]
    return page(
        740, 160, "A window as a sum of nine patterns",
        cells(W, 50, 66), text(72, 30, "one window of W"), text(130, 94, "=", 16), *parts,
        text(440, 30, "coefficients, times the patterns of the basis"),
        text(440, 140, "cosine: the patterns stay; window: they learn", 12, "soft"),
    )  # fmt: skip


def scale():
    W = np.array([[0.31, -0.12, 0.05], [-0.44, 0.27, -0.09], [0.18, -0.36, 0.22]])
    alpha = abs(W).mean()
    shown = [text(62 + 56 * j, 79 + 34 * i, f"{value:+.2f}", 13) for (i, j), value in np.ndenumerate(W)]
    return page(
        560, 180, "A filter, its scale and its signs",
        text(118, 30, "filter W"), *shown, text(240, 112, "≈", 20),
        text(300, 30, "alpha"), text(300, 112, f"{alpha:.2f}", 16), text(350, 112, "×", 20),
        bits(np.sign(W), 390, 60, 34), text(441, 30, "sign(W)"),
        text(300, 172, "analytic: alpha is the mean magnitude, here of nine values", 12, "soft"),
    )  # fmt: skip


DRAWINGS = (sign, svd, tucker, bank, window, scale)

if __name__ == "__main__":
    for drawing in DRAWINGS:
        Path(__file__).with_name(f"{drawing.__name__}.svg").write_text(drawing())
