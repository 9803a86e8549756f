"""The recipe's name, which comes before the flags, because it decides their defaults."""

import sys
from collections.abc import Sequence

from bitfactor.errors import InputError
from bitfactor.recipes import RECIPES, recipe_named
from bitfactor.training import Recipe


def split_recipe(command: str, arguments: Sequence[str]) -> tuple[Recipe, Sequence[str]]:
    """Return the recipe that the first argument names, and the other arguments."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(f"usage: bitfactor {command} RECIPE [OPTIONS]\n\nRecipes: {', '.join(RECIPES)}\n")
        print(f"`bitfactor {command} RECIPE --help` lists the options, with the recipe's own defaults.")
        sys.exit(0)
    if not arguments or arguments[0].startswith("-"):
        raise InputError(
            f"bitfactor {command}",
            expected=f"the name of a recipe first ({', '.join(RECIPES)})",
            found=arguments[0] if arguments else "nothing",
            fix=f"see `bitfactor {command} --help`",
        )
    return recipe_named(arguments[0]), arguments[1:]
