"""`bitfactor summary RECIPE`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bitfactor.cli.output import print_json
from bitfactor.cli.recipe_argument import parse_recipe
from bitfactor.convert import summary
from bitfactor.training import build


@dataclass(frozen=True)
class Arguments:
    """Show a recipe's layers: binary or real, operations by bit width, bytes."""

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the layer table."""
    recipe, options = parse_recipe("summary", Arguments(), arguments)
    result = summary(build(recipe), (1, *recipe.input_shape))
    if options.json:
        print_json(result.to_dict())
    else:
        print(result)
