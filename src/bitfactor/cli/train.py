"""`bitfactor train RECIPE --out DIR`."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from torch import distributed, nn

from bitfactor.cli.output import print_json, status
from bitfactor.cli.recipe_argument import parse_recipe
from bitfactor.recipes import recipe_of
from bitfactor.training import (
    Recipe,
    Run,
    TerminatedError,
    Trial,
    dry_run,
    is_first,
    restore,
    train,
)

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


@dataclass(frozen=True)
class Arguments:
    """Train a recipe; the same command goes on where an interrupted run stopped."""

    out: Path
    """Directory of the run: settings, checkpoint, log."""
    data: Path | None = None
    """Directory of the data, for recipes that need one."""
    dry_run: bool = False
    """Do one batch, say what the run would be like, and write nothing."""
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: Sequence[str]) -> None:
    """Train, showing progress on stderr, and print the outcome; status 143 where SIGTERM ended it."""
    recipe, options = parse_recipe("train", Arguments(tyro.MISSING), arguments)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    teacher = _teacher(recipe)
    try:
        if options.dry_run:
            _print_trial(dry_run(recipe, data=options.data, teacher=teacher), options)
        else:
            result = train(recipe, options.out, status, data=options.data, teacher=teacher)
            _print_outcome(result, recipe, options)
    except TerminatedError as stop:
        if is_first():
            status.print(str(stop), soft_wrap=True)
        sys.exit(_TERMINATED)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _print_outcome(result: dict[str, Any], recipe: Recipe, options: Arguments) -> None:
    if not is_first():
        return
    if options.json:
        print_json({"out": str(options.out), **result})
        return
    headline = recipe.task.headline
    print(
        f"{options.out}: step {result['step']}, loss {result['loss']:.4f}, "
        f"held out {headline} {result[headline]:.2%}"
    )


def _print_trial(trial: Trial, options: Arguments) -> None:
    if not is_first():
        return
    if options.json:
        print_json(trial.to_dict())
    else:
        print(trial)


def _teacher(recipe: Recipe) -> nn.Module | None:
    """Return the network of the run that is to teach."""
    if recipe.optimization.teacher is None:
        return None
    run = Run(Path(recipe.optimization.teacher))
    return restore(recipe_of(run), run)
