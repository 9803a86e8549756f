"""`bitfactor recipes`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bitfactor.cli.arguments import parse
from bitfactor.cli.output import print_json, print_table
from bitfactor.recipes import RECIPES


@dataclass(frozen=True)
class Arguments:
    """List what can be trained."""

    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the table of recipes."""
    options = parse(Arguments, "recipes", arguments)
    recipes = [build() for build in RECIPES.values()]
    if options.json:
        print_json([{"description": recipe.description, **recipe.settings()} for recipe in recipes])
        return
    rows = [
        (r.name, r.binarization.latent, r.binarization.scale, str(r.optimization.epochs), r.description)
        for r in recipes
    ]
    print_table(("recipe", "latent", "scale", "epochs", "what it is"), rows)
