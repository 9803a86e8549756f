"""Networks of int8 layers and binary layers, trained from one in full precision, which teaches them too.

    python benchmarks/mixed.py RUN OUT --data DIR --epochs 9 --learning-rate 0.002
    python benchmarks/trained.py OUT/* --data DIR --out docs/results/front-mixed.json

RUN is a run of `--real`, or a study's cell of it. The same call resumes.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import tyro

import bitfactor
from bitfactor.api.assign import Assignment
from bitfactor.data import DataSet
from bitfactor.recipes import recipe_of
from bitfactor.training import Run

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
    plan_of: Path | None = None
    """A run in full precision whose layers' order is taken, if not RUN's."""


def assigned(run: Path, data: DataSet, networks: int) -> Assignment:
    """Return the order in which the layers turn binary, and as many networks on that way."""
    batches = [*islice(data.train_batches(BATCH, seed=0, epoch=0), BATCHES)]
    return bitfactor.assign(bitfactor.load(run), batches, most_mixes=networks)


def main(options: Arguments) -> None:
    torch.set_num_threads(1)
    recipe = recipe_of(Run(options.run))
    settings = recipe.settings()
    planned = assigned(options.plan_of or options.run, recipe.data(options.data), options.networks)
    print(planned)
    for mix in planned.mixes:
        out = options.out / f"{len(mix.binary)}-binary"
        kinds = {"keep_real": mix.keep_real, "latent": "window", "scale": "learned"} if mix.binary else {}
        bitfactor.train(
            recipe.name,
            out=out,
            data=options.data,
            start_from=options.run,
            teacher=str(options.run),
            real=not mix.binary,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
            eval_interval=options.epochs,
            precision=settings["optimization"]["precision"],
            channels_last=settings["optimization"]["channels_last"],
            warmup_epochs=settings["optimization"]["warmup_epochs"],
            seed=settings["optimization"]["seed"],
            **settings["model"],
            **kinds,
        )


if __name__ == "__main__":
    main(tyro.cli(Arguments))
