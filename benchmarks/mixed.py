"""Networks of int8 layers and binary layers, trained from one in full precision, which teaches them too.

    python benchmarks/mixed.py RUN OUT --data DIR --epochs 9 --learning-rate 0.002
    python benchmarks/trained.py OUT/*-binary --data DIR --out docs/results/front-mixed.json

RUN is a run of `--real`, or a study's cell of it. The same call resumes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import tyro

import bitfactor
from bitfactor.common.files import write_json
from bitfactor.data import DataSet
from bitfactor.recipes import recipe_of
from bitfactor.training import Run

PLAN = "layers.json"  # in OUT: the layers that stay real, by the name of a run
BATCHES, BATCH = 4, 128  # of training images, by which `assign` puts the layers in order


@dataclass(frozen=True)
class Arguments:
    """Train networks of which none, some and all of the layers are binary."""

    run: tyro.conf.Positional[Path]
    """Run in full precision, which they start from and which teaches them."""
    out: tyro.conf.Positional[Path]
    """Directory of the runs."""
    data: Path
    """Directory of the images."""
    epochs: int = 9
    """Epochs of each."""
    learning_rate: float = 0.002
    """Learning rate of all."""
    networks: int = 5
    """How many networks, from none to all layers binary."""
    like: Path | None = None
    """Directory of such networks of another seed, to have the same layers binary."""


def planned(run: Path, data: DataSet, networks: int) -> dict[str, Sequence[str]]:
    """Return the layers that stay real in each of some networks, by the name of its run."""
    batches = [*islice(data.train_batches(BATCH, seed=0, epoch=0), BATCHES)]
    found = bitfactor.assign(bitfactor.load(run), batches, most_mixes=networks)
    print(found)
    return {f"{len(mix.binary)}-binary": mix.keep_real for mix in found.mixes}


def main(options: Arguments) -> None:
    torch.set_num_threads(1)
    recipe = recipe_of(Run(options.run))
    settings = recipe.settings()
    plan = (options.like or options.out) / PLAN
    if not (options.like or plan.exists()):
        write_json(plan, planned(options.run, recipe.data(options.data), options.networks))
    for name, keep_real in json.loads(plan.read_text()).items():
        real = name == "0-binary"
        kinds = {} if real else {"keep_real": keep_real, "latent": "window", "scale": "learned"}
        sides = {"size": settings["data"]["size"]} if "size" in settings["data"] else {}
        bitfactor.train(
            recipe.name,
            out=options.out / name,
            data=options.data,
            start_from=options.run,
            teacher=str(options.run),
            real=real,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
            eval_interval=options.epochs,
            precision=settings["optimization"]["precision"],
            channels_last=settings["optimization"]["channels_last"],
            warmup_epochs=settings["optimization"]["warmup_epochs"],
            seed=settings["optimization"]["seed"],
            **settings["model"],
            **sides,
            **kinds,
        )


if __name__ == "__main__":
    main(tyro.cli(Arguments))
