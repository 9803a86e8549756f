"""`bitfactor train RECIPE --out DIR`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from torch import nn

from bitfactor.cli.output import print_json, status
from bitfactor.cli.recipe_argument import parse_recipe
from bitfactor.recipes import recipe_of
from bitfactor.training import Recipe, Run, TerminatedError, restore, train

_TERMINATED = 143  # 128 + SIGTERM, as shells report it


@dataclass(frozen=True)
class Arguments:
    """Train a recipe; the same command goes on where an interrupted run stopped."""

    out: Path
    """Directory of the run: settings, checkpoint, log."""
    data: Path | None = None
    """Directory of the data, for recipes that need one."""
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: Sequence[str]) -> None:
    """Train, showing progress on stderr, and print the outcome; status 143 where SIGTERM ended it."""
    recipe, options = parse_recipe("train", Arguments(tyro.MISSING), arguments)
    try:
        result = train(recipe, options.out, status, data=options.data, teacher=_teacher(recipe))
    except TerminatedError as stop:
        status.print(str(stop), soft_wrap=True)
        sys.exit(_TERMINATED)
    if options.json:
        print_json({"out": str(options.out), **result})
        return
    headline = recipe.task.headline
    print(
        f"{options.out}: step {result['step']}, loss {result['loss']:.4f}, "
        f"held out {headline} {result[headline]:.2%}"
    )


def _teacher(recipe: Recipe) -> nn.Module | None:
    """Return the network of the run that is to teach."""
    if recipe.optimization.teacher is None:
        return None
    run = Run(Path(recipe.optimization.teacher))
    return restore(recipe_of(run), run)
