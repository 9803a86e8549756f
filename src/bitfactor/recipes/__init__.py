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
    """Return the recipe that `run` was started with, with its settings.

    Raises
    ------
    InputError
        If `run` is no run, or its settings are not those of this version.
    """
    settings = run.settings()
    try:
        return recipe_named(settings["recipe"]).with_settings(settings)
    except (KeyError, TypeError) as error:
        raise InputError(
            run.recipe,
            expected="the settings of a run of this version",
            found=f"others ({error})",
            fix="use the version that is named in that file, or train again",
        ) from error
