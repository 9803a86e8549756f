"""`bitfactor train RECIPE --out DIR`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, status
from bitfactor.convert import Binarization
from bitfactor.errors import InputError
from bitfactor.recipes import RECIPES, recipe_named
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
    if not arguments or arguments[0].startswith("-"):
        raise InputError(
            "bitfactor train",
            expected=f"the name of a recipe first ({', '.join(RECIPES)})",
            found=arguments[0] if arguments else "nothing",
            fix="bitfactor train RECIPE --help lists the settings of a recipe",
        )
    recipe = recipe_named(arguments[0])
    defaults = Arguments(tyro.MISSING, recipe.binarization, recipe.optimization)
    options = parse(Arguments, f"train {recipe.name}", arguments[1:], defaults)
    recipe = replace(recipe, binarization=options.binarization, optimization=options.optimization)
    result = train(recipe, options.out, status)
    if options.json:
        print_json({"out": str(options.out), **result})
    else:
        print(
            f"{options.out}: step {result['step']}, loss {result['loss']:.4f}, "
            f"held out {result['accuracy']:.2%}"
        )
