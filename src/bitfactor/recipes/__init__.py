"""What can be trained. A new experiment is a function in a file here and one line of the table."""

from collections.abc import Callable

from bitfactor.errors import InputError, near_matches
from bitfactor.recipes.digits import digits
from bitfactor.training import Recipe, Run

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits": digits,
}


def recipe_named(name: str) -> Recipe:
    """Return the recipe called `name`.

    Raises
    ------
    InputError
        If there is none; the message lists near matches.
    """
    if name not in RECIPES:
        raise InputError(
            "recipe", expected="the name of a recipe", found=repr(name), fix=near_matches(name, RECIPES)
        )
    return RECIPES[name]()


def recipe_of(run: Run) -> Recipe:
    """Return the recipe that `run` was started with, with its settings."""
    settings = run.settings()
    return recipe_named(settings["recipe"]).with_settings(settings)
