"""`bitfactor summary RECIPE`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json
from bitfactor.cli.recipe_argument import split_recipe
from bitfactor.convert import Binarization, summary
from bitfactor.training import build


@dataclass(frozen=True)
class Arguments:
    """Show a recipe's layers: binary or real, operations by bit width, bytes."""

    binarization: tyro.conf.OmitArgPrefixes[Binarization]
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the layer table."""
    recipe, flags = split_recipe("summary", arguments)
    options = parse(Arguments, f"summary {recipe.name}", flags, Arguments(recipe.binarization))
    recipe = replace(recipe, binarization=options.binarization)
    result = summary(build(recipe), (1, *recipe.input_shape))
    if options.json:
        print_json(result.to_dict())
    else:
        print(result)
