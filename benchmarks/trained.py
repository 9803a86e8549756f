"""Accuracy against latency and bytes of the networks of a study: at 1 bit, in float32 and in int8.

    python benchmarks/trained.py STUDY --data DIR

STUDY is the directory of a `bitfactor ablate` with `--real`. The first seed's networks are timed in one
interleaved run on one core, each in its faster engine. Accuracy is that of all seeds, from their files.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from bitfactor.recipes.runs import training_images
from bitfactor.runtime import Session
from bitfactor.study.directory import StudyDirectory
from bitfactor.study.grid import Training, setting_of
from bitfactor.targets.onnx import to_onnx
from bitfactor.training import Run

CALIBRATION = 256  # training images, for the ranges of int8


@dataclass(frozen=True)
class Arguments:
    """Measure what a study trained, and write the figures as JSON."""

    study: tyro.conf.Positional[Path]
    """Directory of the study."""
    data: Path
    """Directory of the images."""
    out: Path = Path("docs/results/front-trained.json")
    """File to write."""
    runs: int = 500
    """Timed runs of each network."""


@dataclass(frozen=True)
class Made:
    """A training's network with its weights in an engine: a call for one image, and the file's bytes."""

    training: Training
    weights: str
    engine: str
    call: Network
    bytes: int


def made(cell: Path, training: Training, folder: Path) -> list[Made]:
    """Return a training's network in each engine that runs it."""
    file = cell / "net.safetensors"
    if not training.cell.real:
        return [
            Made(training, "1 bit", name, Session(file, precision=name, threads=1), file.stat().st_size)
            for name in ("highest", "low")
        ]
    run, proto = Run(cell), with_onnxruntime.with_batch(to_onnx(load(file)), 1)
    samples = training_images(recipe_of(run), run, CALIBRATION).numpy()
    protos = {"float": proto, "int8": with_onnxruntime.quantised(proto, samples[:, None])}
    return [one for weights, proto in protos.items() for one in in_engines(training, weights, proto, folder)]


def in_engines(training: Training, weights: str, proto: onnx.ModelProto, folder: Path) -> list[Made]:
    """Return a network in full precision, or in int8, in both engines."""
    path = folder / f"{training.cell.name}-{weights}.onnx"
    path.write_bytes(proto.SerializeToString())
    engines = networks_of(path, 1)[1]
    return [Made(training, weights, name, call, path.stat().st_size) for name, call in engines.items()]


def accuracy(one: Made, cell: Path, data: Path) -> float:
    """Return how many of the test images a network classifies right in its engine."""
    network = network_at(cell / "net.safetensors")
    own = replace(network, outputs=partial(one_by_one, one.call))
    return float(classify(own, images_of(network, data)).accuracy)


def measured(study: StudyDirectory, data: Path, runs: int) -> list[Mapping[str, Any]]:
    """Return a row for each network, with its weights, in each engine."""
    read = study.read()
    with TemporaryDirectory() as folder:
        found = [
            one
            for training in read.finished
            for one in made(study.cell(training.cell).path, training, Path(folder))
        ]
        first = min(read.design.seeds)
        calls = {
            str(i): partial(one.call, np.zeros((1, 3, 32, 32), np.float32))
            for i, one in enumerate(found)
            if one.training.cell.seed == first
        }
        times = {row["name"]: row for row in interleaved(calls, runs)}
        return [
            {
                "network": dict(setting_of(one.training.cell, read.design.axes)),
                "weights": one.weights,
                "engine": one.engine,
                "seed": one.training.cell.seed,
                "accuracy": accuracy(one, study.cell(one.training.cell).path, data),
                "bytes": one.bytes,
                **{name: times[str(i)][name] for name in ("minimum_ms", "median_ms") if str(i) in times},
            }
            for i, one in enumerate(found)
        ]


def main(options: Arguments) -> None:
    study = StudyDirectory(options.study)
    packages: Sequence[str] = ("numpy", "torch", "onnxruntime", "openvino")
    write_json(
        options.out,
        {
            "machine": cpu_name(),
            "isa": Session("digits").isa,
            "runs": options.runs,
            "versions": {name: version(name) for name in packages},
            "rows": measured(study, options.data, options.runs),
        },
    )
    print(json.dumps(json.loads(options.out.read_text())["rows"], indent=1))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
