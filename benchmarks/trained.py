"""Accuracy against latency and bytes of trained networks: at 1 bit, mixed, in float32 and in int8.

    python benchmarks/trained.py RUN... --data DIR --out docs/results/front-trained.json

A RUN is the directory of a training, or a study's cell (`ablate --keep-checkpoints`). The networks of the
first seed are timed in one interleaved run on one core. Accuracy is that of all, each in its engine. Where
there is one seed, the file says which images each classifies right.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tyro

from bitfactor.api.bench import interleaved
from bitfactor.api.candidates import Made, written
from bitfactor.api.evaluate import ClassEvaluation
from bitfactor.common.files import write_json
from bitfactor.common.machine import cpu_name
from bitfactor.recipes import recipe_of
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.training import Run

PACKAGES = "numpy", "torch", "onnxruntime", "openvino"


@dataclass(frozen=True)
class Arguments:
    """Measure networks that were trained, and write the figures as JSON."""

    trained: tyro.conf.Positional[tuple[Path, ...]]
    """Directories of runs."""
    data: Path
    """Directory of the images."""
    out: Path
    """File to write."""
    runs: int = 500
    """Timed runs of each network."""


def about(made: Made, run: Path) -> dict[str, Any]:
    """Return what a network in an engine is, as JSON."""
    settings = recipe_of(Run(run)).settings()
    kept = settings["binarization"]["keep_real"]
    return {
        "widths": settings["model"]["widths"],
        "blocks": settings["model"]["blocks"],
        "keep_real": kept,
        "seed": settings["optimization"]["seed"],
        "weights": "mixed" if kept else made.weights,
        "engine": made.engine,
        "bytes": made.file.stat().st_size,
    }


def measured(runs: Sequence[Path], data: Path, repeats: int) -> list[Mapping[str, Any]]:
    """Return a row for each network, with its weights, in each engine."""
    with TemporaryDirectory() as folder:
        found = [
            (about(one, run), one)
            for i, run in enumerate(runs)
            for one in written(run, Path(folder, str(i)), threads=1)
        ]
        first, *others = sorted({row["seed"] for row, _ in found})
        calls = {
            str(i): partial(one.call, np.zeros((1, *one.shape), np.float32))
            for i, (row, one) in enumerate(found)
            if row["seed"] == first
        }
        times = {row.pop("name"): row for row in interleaved(calls, repeats)}
        return [
            {**row, **said(one.on(data), each=not others), **times.get(str(i), {})}
            for i, (row, one) in enumerate(found)
        ]


def said(found: ClassEvaluation, *, each: bool) -> dict[str, Any]:
    """Return the accuracy as JSON; with `each` also which images are right, as bits in base 64."""
    right = found.expected == found.found
    bits = {"images": len(right), "right": b64encode(np.packbits(right)).decode()} if each else {}
    return {"accuracy": float(found.accuracy), **bits}


def main(options: Arguments) -> None:
    found = {
        "machine": cpu_name(),
        "isa": Session(file_of("digits")).isa,
        "runs": options.runs,
        "versions": {name: version(name) for name in PACKAGES},
        "rows": measured(options.trained, options.data, options.runs),
    }
    write_json(options.out, found)
    print(json.dumps(found["rows"], indent=1))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
