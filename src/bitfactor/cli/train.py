"""`bitfactor train RECIPE --out DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, status
from bitfactor.cli.recipe_argument import split_recipe
from bitfactor.convert import Binarization
from bitfactor.training import Optimization, train


@dataclass(frozen=True)
class Arguments:
    """Train a recipe; the same command goes on where an interrupted run stopped."""

    out: Path
    """Directory of the run: settings, checkpoint, log."""
    binarization: tyro.conf.OmitArgPrefixes[Binarization]
    optimization: tyro.conf.OmitArgPrefixes[Optimization]
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: Sequence[str]) -> None:
    """Train, showing progress on stderr, and print the outcome."""
    recipe, flags = split_recipe("train", arguments)
    defaults = Arguments(tyro.MISSING, recipe.binarization, recipe.optimization)
    options = parse(Arguments, f"train {recipe.name}", flags, defaults)
    recipe = replace(recipe, binarization=options.binarization, optimization=options.optimization)
    result = train(recipe, options.out, status)
    if options.json:
        print_json({"out": str(options.out), **result})
    else:
        print(
            f"{options.out}: step {result['step']}, loss {result['loss']:.4f}, "
            f"held out {result['accuracy']:.2%}"
        )
