"""What can be trained. A new experiment is a function in a file here and one line of the table."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.files import run_again
from bitfactor.format import ModelFile
from bitfactor.recipes import hourglass, resnet
from bitfactor.recipes.own import OwnModel, with_own_model
from bitfactor.training import Recipe, Run

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits": resnet.digits,
    "cifar10-resnet18": resnet.cifar10_resnet18,
    "cifar10-resnet18-recu": resnet.cifar10_resnet18_recu,
    "cifar10-resnet18-biper": resnet.cifar10_resnet18_biper,
    "cifar10-resnet20": resnet.cifar10_resnet20,
    "cifar10-vgg-small": resnet.cifar10_vgg_small,
    "cifar100-resnet18": resnet.cifar100_resnet18,
    "imagenet-resnet18": resnet.imagenet_resnet18,
    "imagenet-real2binary18": resnet.imagenet_real2binary18,
    "imagenet-reactnet18": resnet.imagenet_reactnet18,
    "imagenet-reactnet-a": resnet.imagenet_reactnet_a,
    "folder-compact": resnet.folder_compact,
    "folder-resnet18": resnet.folder_resnet18,
    "mpii-hourglass": hourglass.mpii_hourglass,
    "coco-hourglass": hourglass.coco_hourglass,
    "lsp-hourglass": hourglass.lsp_hourglass,
    "lsp-hourglass-small": hourglass.lsp_hourglass_small,
}


@checked
def register(name: str, build: Callable[[], Recipe]) -> None:
    """Let `name` stand for the recipe that `build` returns, with data of one's own too.

    A file that does so is run by `bitfactor --import FILE.py COMMAND ...`.

    Raises
    ------
    InputError
        If the name is taken, cannot stand on a command line, or `build` is no function.

    Example
    -------
    >>> bitfactor.recipes.register("my-digits", lambda: replace(digits(), name="my-digits"))
    """
    if name.startswith("-") or not name or len(name.split()) != 1:
        raise InputError("recipe", expected="a name of one word", found=repr(name), fix="use dashes")
    if RECIPES.get(name, build) is not build:
        raise InputError(
            "recipe", expected="a new name", found=f"{name!r}, which is one", fix="choose another"
        )
    RECIPES[name] = build


@checked
def recipe_named(name: str) -> Recipe:
    """Return the recipe called `name`."""
    if name not in RECIPES:
        raise InputError(
            "recipe", expected="the name of a recipe", found=repr(name), fix=near_matches(name, RECIPES)
        )
    found: Any = RECIPES[name]()
    expected, fix = "a bitfactor.Recipe", "let the function that is registered return one"
    made = isinstance(found, Recipe)
    expect_that(made, f"recipe {name}", expected=expected, found=type(found).__name__, fix=fix)
    recipe: Recipe = replace(found, name=name)
    return recipe


@checked
def expect_registered(recipe: Recipe) -> Recipe:
    """Return a recipe, unless its name stands for one with another network, data set or task.

    A run and a study keep the name and the options, by which the recipe is found again.
    """
    known = recipe_named(recipe.name) if recipe.name in RECIPES else recipe
    own = isinstance(recipe.model, OwnModel)
    for part in ("data", "task") if own else ("model", "data", "task", "adapt"):
        if not _alike(getattr(recipe, part), getattr(known, part)):
            raise InputError(
                "recipe",
                expected=f"the {part} of the recipe that is registered as {recipe.name}",
                found="another",
                fix="register this one under a name of its own: bitfactor.recipes.register",
            )
    return recipe


def _alike(one: Any, other: Any) -> bool:
    """Return whether two parts are the same but for options, and functions made twice by one place."""
    codes = [getattr(part, "__code__", None) for part in (one, other)]
    return codes[0] == codes[1] and type(one) is type(other)


@checked
def provenance_of(recipe: Recipe) -> dict[str, str]:
    """Return what an exported file says about its recipe, so that `recipe_of_file` finds it."""
    own: dict[str, str] = getattr(recipe.task, "provenance", {})
    return {"recipe": recipe.name, "settings": json.dumps(recipe.settings()), **own}


@checked
def recipe_of_file(model: ModelFile, path: Path) -> Recipe:
    """Return the recipe, with its settings, of the run that a model file was exported from."""
    if "recipe" not in model.provenance:
        raise InputError(
            path,
            expected="a file exported from a run",
            found="one that names no recipe, so its data and float network are not known",
            fix="export it with `bitfactor export RUN`",
        )
    if "settings" not in model.provenance:
        return recipe_named(model.provenance["recipe"])
    return recipe_of_settings(json.loads(model.provenance["settings"]), path)


@checked
def recipe_of(run: Run) -> Recipe:
    """Return the recipe that `run` was started with, with its settings.

    The files that it imported, which may have registered what it names, are run first. That of its teacher
    need not be there any more.
    """
    settings = run.settings()
    teacher = Path(str(settings["optimization"].get("teacher")).rpartition(":")[0]).name
    for file, sha256 in run.imports().items():
        if Path(file).name != teacher or Path(file).is_file():
            run_again(file, sha256)
    return recipe_of_settings(settings, run.recipe)


@checked
def recipe_of_settings(settings: dict[str, Any], where: object) -> Recipe:
    """Return the recipe that gives these settings, see `Recipe.settings`; `where` stands in messages."""
    recipe = recipe_named(str(settings.get("recipe")))
    try:
        return with_own_model(recipe, settings["model"]).with_settings(settings)
    except (KeyError, TypeError, InputError) as error:
        raise InputError(
            where,
            expected="the settings of a run of this version",
            found=f"others ({error})",
            fix="use the version that is named in that file, or train again",
        ) from error
