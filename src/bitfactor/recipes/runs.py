"""A recipe becomes a run, and a run a model again, or a file."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.version import __version__
from bitfactor.data.readers.identity import published, remembered, without_place
from bitfactor.format.low_precision import Real
from bitfactor.recipes import provenance_of, recipe_of
from bitfactor.training import Recipe, Run, Trial, restore
from bitfactor.training import dry_run as try_out
from bitfactor.training import train as train_in
from bitfactor.training.loggers import Tracker

if TYPE_CHECKING:
    from bitfactor.exporter import ExportReport

_Path = str | os.PathLike[str]


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    data: Path | None,
    console: Console,
    start_from: _Path | None = None,
    device: str = "auto",
    other_data: bool = False,
    beside: Sequence[Run] = (),
    trial: bool = False,
    callbacks: Sequence[object] = (),
    track: Sequence[Tracker] = (),
) -> Trial | None:
    """Train a recipe, see `bitfactor.train`, or try it; raises TerminatedError as `training.train` does."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    teacher, start = (None if run is None else load(run) for run in (recipe.optimization.teacher, start_from))
    if trial:
        return try_out(recipe, data=data, teacher=teacher, device=device, start_from=start)
    train_in(
        recipe,
        out,
        console,
        data=data,
        teacher=teacher,
        device=device,
        other_data=other_data,
        start_from=start,
        beside=beside,
        callbacks=callbacks,
        track=track,
        source=None if start_from is None else str(Path(start_from).resolve()),
    )
    return None


@checked
def load(run: _Path, *, best: bool = False) -> nn.Module:
    """Return the network of a run as a torch model, in evaluation mode; `best` takes its best epoch's.

    Raises
    ------
    InputError
        If `run` is no directory of a run, or has no checkpoint.

    Example
    -------
    >>> model = bitfactor.load("runs/a")
    """
    directory = Run(Path(run))
    return restore(recipe_of(directory), directory, best=best)


_EXAMPLES = 2


def export_run(
    run: Run,
    path: Path,
    *,
    best: bool = False,
    real: Real = "float32",
    calibration: int = 0,
    overwrite: bool = False,
) -> "ExportReport":
    """Write the network of `run` to `path` with all that its run knows of it; see `bitfactor.export`.

    `calibration` is how many training images give the ranges for precision `low`.
    """
    from bitfactor.exporter import ExportReport, export  # here, for a quick import of what trains

    recipe, interface = recipe_of(run), run.interface()
    progress = progress_of(run, recipe, best=best)
    examples = torch.randn(_EXAMPLES, *recipe.input_shape, generator=torch.Generator().manual_seed(1))
    report = export(
        restore(recipe, run, best=best),
        path,
        examples,
        real=real,
        calibration=training_images(run, calibration) if calibration else None,
        input_spec=interface.input_spec,
        labels=interface.labels,
        skeleton=interface.skeleton,
        provenance={
            "bitfactor": __version__,
            **provenance_of(recipe),
            **published(run.path),
            **progress,
        },
        overwrite=overwrite,
    )
    assert isinstance(report, ExportReport)
    if not best and progress["epoch"] != progress["epochs"]:
        half = f"trained {progress['epoch']} of {progress['epochs']} epochs: the run is not finished"
        report = replace(report, warnings=(*report.warnings, half))
    return report


def training_images(run: Run, count: int) -> Tensor:
    """Return training images as the network saw them, augmented."""
    directory = (remembered(run.path) or {}).get("path")
    data = recipe_of(run).data(directory and Path(directory))
    most = data.steps(1)
    if not 1 <= count <= most:
        raise InputError(
            "calibration",
            expected=f"1 to {most:,} images, as there are to train with",
            found=str(count),
            fix="a few hundred are enough",
        )
    batches = islice(data.train_batches(1, seed=0, epoch=0), count)
    return torch.cat([images for images, _ in batches])


def progress_of(run: Run, recipe: Recipe, *, best: bool = False) -> dict[str, str]:
    """Return how far the checkpoint came, and how good it then was on which images, as a file states it."""
    state = run.load(best=best)
    last = state["rows"][-1] if state["rows"] else {}
    headline, data = recipe.task.headline, remembered(run.path) or {}
    found = {
        "step": str(state["step"]),
        "epoch": str(last.get("epoch", 0)),
        "epochs": str(recipe.optimization.epochs),
    }
    if headline in last:
        images = f" of {without_place(data['evaluated'])}" if data.get("evaluated") else ""
        found["metric"] = f"{headline} {last[headline]:.2%}{images}"
    return found
