"""Accuracy against latency and bytes of trained networks: at 1 bit, mixed, in float32 and in int8.

    python benchmarks/trained.py RUN... --data DIR --out docs/results/front-trained.json

A RUN is the directory of a training, or a study's cell (`ablate --keep-checkpoints`). The networks of the
first seed are timed in one interleaved run on one core. Accuracy is that of all, each in its engine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import tyro

from bitfactor.api.bench import interleaved, one_by_one
from bitfactor.api.evaluate import classify, images_of
from bitfactor.api.network import network_at
from bitfactor.common.files import write_json
from bitfactor.common.machine import cpu_name
from bitfactor.engines import Network, networks_of, with_onnxruntime
from bitfactor.format import load
from bitfactor.recipes import recipe_of
from bitfactor.recipes.runs import export_run, training_images
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.onnx import to_onnx
from bitfactor.training import Run

CALIBRATION = 256  # training images, for the ranges of int8
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


@dataclass(frozen=True)
class Made:
    """A run's network with its weights in an engine: its file, and a call of it for one image."""

    run: Run
    weights: str
    engine: str
    file: Path
    call: Network = field(repr=False)

    @property
    def about(self) -> dict[str, Any]:
        """What it is, as JSON."""
        settings = recipe_of(self.run).settings()
        return {
            "widths": settings["model"]["widths"],
            "blocks": settings["model"]["blocks"],
            "keep_real": settings["binarization"]["keep_real"],
            "seed": settings["optimization"]["seed"],
            "weights": self.weights,
            "engine": self.engine,
            "bytes": self.file.stat().st_size,
        }

    def accuracy(self, source: Path, data: Path) -> float:
        """Return what part of the test images it classifies right; `source` says how to prepare them."""
        network = network_at(source)
        own = replace(network, outputs=partial(one_by_one, self.call))
        return float(classify(own, images_of(network, data)).accuracy)


def made(path: Path, folder: Path) -> tuple[Path, list[Made]]:
    """Return a run's exported file, and its network in each engine that runs it."""
    run, recipe = Run(path), recipe_of(Run(path))
    source = folder / f"{'-'.join(path.resolve().parts[1:])}.safetensors"
    export_run(run, source, calibration=CALIBRATION)
    sessions = {name: Session(source, precision=name, threads=1) for name in ("highest", "low")}
    if not recipe.real:
        weights = "mixed" if recipe.settings()["binarization"]["keep_real"] else "1 bit"
        return source, [Made(run, weights, name, source, session) for name, session in sessions.items()]
    ours = [
        Made(run, weights, f"bitfactor, {name}", source, sessions[name])
        for weights, name in {"float": "highest", "int8": "low"}.items()
    ]
    proto = with_onnxruntime.with_batch(to_onnx(load(source)), 1)
    samples = training_images(recipe, run, CALIBRATION).numpy()
    protos = {"float": proto, "int8": with_onnxruntime.quantised(proto, samples[:, None])}
    others = [one for weights, proto in protos.items() for one in in_engines(run, weights, proto, source)]
    return source, [*ours, *others]


def in_engines(run: Run, weights: str, proto: onnx.ModelProto, source: Path) -> list[Made]:
    """Return a network in full precision, or in int8, in both engines."""
    file = source.with_name(f"{source.stem}-{weights}.onnx")
    file.write_bytes(proto.SerializeToString())
    return [Made(run, weights, name, file, call) for name, call in networks_of(file, 1)[1].items()]


def measured(paths: Sequence[Path], data: Path, runs: int) -> list[Mapping[str, Any]]:
    """Return a row for each network, with its weights, in each engine."""
    with TemporaryDirectory() as folder:
        found = [
            (source, one) for path in paths for source, all_ in [made(path, Path(folder))] for one in all_
        ]
        first = min(one.about["seed"] for _, one in found)
        x = np.zeros((1, 3, 32, 32), np.float32)
        calls = {
            str(i): partial(one.call, x) for i, (_, one) in enumerate(found) if one.about["seed"] == first
        }
        times = {row.pop("name"): row for row in interleaved(calls, runs)}
        return [
            {**one.about, "accuracy": one.accuracy(source, data), **times.get(str(i), {})}
            for i, (source, one) in enumerate(found)
        ]


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
