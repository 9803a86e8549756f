"""The recipe's name, which comes before the flags, because it decides which there are and their defaults."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Generic, TypeVar

import tyro

from bitfactor.cli.arguments import parse
from bitfactor.convert import Binarization
from bitfactor.errors import InputError
from bitfactor.recipes import RECIPES, recipe_named
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
    pictures: tyro.conf.OmitArgPrefixes[Data]
    binarization: tyro.conf.OmitArgPrefixes[Binarization]
    optimization: tyro.conf.OmitArgPrefixes[Optimization]
    real: bool = False
    """Leave the network real-valued: the float twin."""


def parse_recipe(command: str, own: Own, arguments: Sequence[str]) -> tuple[Recipe, Own]:
    """Read a recipe's name and flags; `own` holds the command's own, with their defaults."""
    recipe, rest = split_recipe(command, arguments)
    model, data = _options_of(recipe.model), _options_of(recipe.data)
    kind: Any = Flags[type(own), type(model), type(data)]  # type: ignore[misc]
    defaults = kind(own, model, data, recipe.binarization, recipe.optimization, recipe.real)
    flags = parse(kind, f"{command} {recipe.name}", rest, defaults)
    chosen = replace(
        recipe,
        model=recipe.model if isinstance(model, NoOptions) else flags.model,
        data=recipe.data if isinstance(data, NoOptions) else flags.pictures,
        binarization=flags.binarization,
        optimization=flags.optimization,
        real=flags.real,
    )
    return chosen, flags.command


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


def _options_of(part: object) -> object:
    return part if is_dataclass(part) else NoOptions()
