"""`bitfactor train RECIPE --out DIR`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from torch import distributed

from bitfactor.api.train import TrainedRun, expect_effect
from bitfactor.cli.output import print_result, status
from bitfactor.cli.recipe_argument import parse_recipe
from bitfactor.recipes import recipe_named
from bitfactor.recipes.runs import run_recipe
from bitfactor.training import TerminatedError, is_first

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


@dataclass(frozen=True)
class Arguments:
    """Train a recipe; the same command resumes where an interrupted run stopped."""

    out: Path
    """Directory of the run: settings, checkpoint, log."""
    data: Path | None = None
    """Directory of the data, for recipes that need one; a run that is resumed remembers it."""
    start_from: Annotated[Path | None, tyro.conf.arg(name="from", metavar="RUN")] = None
    """A run whose weights are taken over: of the same network, of any latent or in full precision."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    other_data: bool = False
    """Resume although the images are others than those that the run began with."""
    dry_run: bool = False
    """Do a few batches, say what the run would be like, and write nothing."""
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: Sequence[str]) -> None:
    """Train, showing progress on stderr, and print the outcome; status 143 where SIGTERM ended it."""
    recipe, options = parse_recipe("train", Arguments(tyro.MISSING), arguments)
    expect_effect(recipe, recipe_named(recipe.name))
    try:
        outcome = run_recipe(
            recipe,
            options.out,
            data=options.data,
            console=status,
            start_from=options.start_from,
            device=options.device,
            other_data=options.other_data,
            trial=options.dry_run,
        )
        if is_first():
            print_result(outcome or TrainedRun(options.out), as_json=options.json)
    except TerminatedError as stop:
        if is_first():
            status.print(str(stop), soft_wrap=True)
        sys.exit(_TERMINATED)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
