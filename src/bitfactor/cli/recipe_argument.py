"""The recipe's name, which comes before the flags, because it decides which there are and their defaults."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Annotated, Any, Generic, TypeVar

import tyro

from bitfactor.binarization import Binarization
from bitfactor.cli.arguments import parse
from bitfactor.common.errors import InputError
from bitfactor.recipes import RECIPES, recipe_named
from bitfactor.recipes.own import OwnModel, with_own_model
from bitfactor.training import Optimization, Recipe

Own = TypeVar("Own")
Model = TypeVar("Model")
Data = TypeVar("Data")


@dataclass(frozen=True)
class NoOptions:
    """What a recipe without options of its own has in their place."""


@dataclass(frozen=True)
class Flags(Generic[Own, Model, Data]):
    """The flags of a command about a recipe: its own, and all that the recipe leaves open."""

    command: tyro.conf.OmitArgPrefixes[Own]
    model: tyro.conf.OmitArgPrefixes[Model]
    images: tyro.conf.OmitArgPrefixes[Data]
    binarization: tyro.conf.OmitArgPrefixes[Binarization]
    optimization: tyro.conf.OmitArgPrefixes[Optimization]
    real: bool = False
    """Leave the network in full precision: the baseline."""
    own_model: Annotated[str | None, tyro.conf.arg(name="model", metavar="FILE.py:NAME")] = None
    """Train a network of your own in place of the recipe's: a class or function without required arguments,
    or a module. The other flags stay, but for those of the recipe's network."""


def parse_recipe(command: str, own: Own, arguments: Sequence[str]) -> tuple[Recipe, Own]:
    """Read a recipe's name and flags; `own` holds the command's own, with their defaults."""
    recipe, rest = split_recipe(command, arguments)
    return recipe_with(command, recipe, own, rest)


def recipe_with(command: str, recipe: Recipe, own: Own, arguments: Sequence[str]) -> tuple[Recipe, Own]:
    """Read the flags of a recipe and the command's own, see `parse_recipe`."""
    kind, defaults = flags_for(recipe, own)
    flags = parse(kind, f"{command} {recipe.name}", arguments, defaults)
    if flags.own_model is not None:
        raise InputError(
            "--model", expected="one network", found=f"{flags.own_model} too", fix="leave it out"
        )
    chosen = replace(
        recipe,
        model=recipe.model if isinstance(defaults.model, NoOptions) else flags.model,
        data=recipe.data if isinstance(defaults.images, NoOptions) else flags.images,
        binarization=flags.binarization,
        optimization=flags.optimization,
        real=flags.real,
    )
    return chosen, flags.command


def flags_for(recipe: Recipe, own: Any) -> tuple[type[Flags[Any, Any, Any]], Flags[Any, Any, Any]]:
    """Return the dataclass of a recipe's flags and the command's own, and their defaults."""
    model, data = _options_of(recipe.model), _options_of(recipe.data)
    kind: Any = Flags[type(own), type(model), type(data)]  # type: ignore[misc]
    return kind, kind(own, model, data, recipe.binarization, recipe.optimization, recipe.real)


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
    return _split_model(recipe_named(arguments[0]), arguments[1:])


def _split_model(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, Sequence[str]]:
    """Return the recipe with the network of the user's own that `--model` names, and the other arguments."""
    for i, word in enumerate(arguments):
        if word == "--model" and i + 1 < len(arguments):
            return _own(recipe, arguments[i + 1]), [*arguments[:i], *arguments[i + 2 :]]
        if word.startswith("--model="):
            return _own(recipe, word.partition("=")[2]), [*arguments[:i], *arguments[i + 1 :]]
    return recipe, arguments


def _own(recipe: Recipe, spec: str) -> Recipe:
    return with_own_model(recipe, asdict(OwnModel.at(spec)))


def _options_of(part: object) -> object:
    return part if is_dataclass(part) and not isinstance(part, OwnModel) else NoOptions()
