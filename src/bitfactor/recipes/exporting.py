"""A run's network as a file."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from bitfactor.common.errors import InputError
from bitfactor.common.version import __version__
from bitfactor.data.readers.identity import published, remembered, without_place
from bitfactor.exporter import ExportReport, Real, export
from bitfactor.recipes import provenance_of, recipe_of
from bitfactor.training import Recipe, Run, restore

_EXAMPLES = 2


def export_run(
    run: Run,
    path: Path,
    *,
    best: bool = False,
    real: Real = "float32",
    calibration: int = 0,
    overwrite: bool = False,
) -> ExportReport:
    """Write the network of `run` to `path` with all that its run knows of it; see `bitfactor.export`.

    `calibration` is how many training images give the ranges for precision `low`.
    """
    recipe, interface = recipe_of(run), run.interface()
    progress = progress_of(run, recipe, best=best)
    examples = torch.randn(_EXAMPLES, *recipe.input_shape, generator=torch.Generator().manual_seed(1))
    report = export(
        restore(recipe, run, best=best),
        path,
        examples,
        real=real,
        calibration=_training_images(recipe, run, calibration) if calibration else None,
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


def _training_images(recipe: Recipe, run: Run, count: int) -> Tensor:
    """Return training images as the network saw them, augmented."""
    directory = (remembered(run.path) or {}).get("path")
    data = recipe.data(directory and Path(directory))
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
