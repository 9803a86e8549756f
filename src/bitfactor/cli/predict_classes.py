"""`bitfactor predict` with a network that classifies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.cli.output import print_json, print_table
from bitfactor.cli.sources import is_video
from bitfactor.errors import InputError
from bitfactor.format import InputSpec
from bitfactor.pictures import prepare, read_picture
from bitfactor.runtime import Session


def predict_classes(
    session: Session, spec: InputSpec, sources: Sequence[Path], top: int, as_json: bool
) -> None:
    """Print the most probable classes of each picture."""
    results: list[dict[str, Any]] = []
    for path in sources:
        if is_video(path):
            raise InputError(path, expected="a picture", found="a video", fix="leave it out")
        scores = np.asarray(session(prepare(read_picture(path, len(spec.mean)), spec)[None]))[0]
        results.append({"picture": str(path), "classes": _ranked(scores, session.model.labels, top)})
    if as_json:
        print_json(results)
        return
    rows = [(r["picture"], *(f"{c['label']} {c['probability']:.1%}" for c in r["classes"])) for r in results]
    print_table(("picture", *(f"{i + 1}." for i in range(len(rows[0]) - 1))), rows)


def _ranked(scores: NDArray[np.float32], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
    exponents = np.exp(scores - scores.max())
    probabilities = exponents / exponents.sum()
    best = probabilities.argsort()[::-1][: max(top, 1)]
    return [
        {"class": int(i), "label": labels[i] if labels else str(i), "probability": float(probabilities[i])}
        for i in best
    ]
