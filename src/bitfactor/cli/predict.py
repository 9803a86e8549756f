"""`bitfactor predict FILE PICTURE...`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_table
from bitfactor.errors import InputError
from bitfactor.pictures import prepare, read_picture
from bitfactor.runtime import Session


@dataclass(frozen=True)
class Arguments:
    """Classify pictures with an exported network."""

    model: tyro.conf.Positional[Path]
    """Exported file."""
    pictures: tyro.conf.Positional[tuple[Path, ...]]
    """Pictures; any size, resized as the model wants them."""
    top: int = 3
    """How many classes to show."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the most probable classes of each picture."""
    options = parse(Arguments, "predict", arguments)
    if not options.pictures:
        raise InputError(
            "bitfactor predict", expected="a picture", found="none", fix="name one after the model"
        )
    session = Session(options.model)
    spec = session.model.input_spec
    if spec is None:
        raise InputError(
            options.model,
            expected="a model that says how pictures are prepared",
            found="no input specification",
            fix="pass input_spec to bitfactor.export",
        )
    results: list[dict[str, Any]] = []
    for path in options.pictures:
        scores = np.asarray(session(prepare(read_picture(path, len(spec.mean)), spec)[None]))[0]
        results.append({"picture": str(path), "classes": _ranked(scores, session.model.labels, options.top)})
    if options.json:
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
