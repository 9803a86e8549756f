"""A recipe becomes a run, and a run a model again."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from torch import nn

from bitfactor.common.checks import checked
from bitfactor.recipes import recipe_of
from bitfactor.training import Recipe, Run, Trial, restore
from bitfactor.training import dry_run as try_out
from bitfactor.training import train as train_in
from bitfactor.training.loggers import Tracker

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
