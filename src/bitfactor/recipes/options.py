"""The options of a recipe by name: those of its network, data, binarization and optimization."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

from bitfactor.checks import expect
from bitfactor.errors import InputError, near_matches
from bitfactor.training import Recipe

_PARTS = ("model", "data", "binarization", "optimization")


def with_options(recipe: Recipe, options: Mapping[str, Any]) -> Recipe:
    """Return `recipe` with other values for the options named; lists become tuples.

    Raises
    ------
    InputError
        If the recipe has no such option, or a value is not what the option takes.

    Example
    -------
    >>> with_options(digits(), {"latent": "tucker", "epochs": 3}).optimization.epochs
    3
    """
    known = _owners(recipe)
    chosen: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in known:
            where = f"recipe {recipe.name}"
            raise InputError(where, expected="a known option", found=name, fix=near_matches(name, known))
        part, annotation = known[name]
        value = tuple(value) if isinstance(value, list) else value
        expect(name, value, annotation)
        chosen.setdefault(part, {})[name] = value
    changed = {
        part: replace(getattr(recipe, part), **values) for part, values in chosen.items() if part != "recipe"
    }
    return replace(recipe, **changed, **chosen.get("recipe", {}))


def _owners(recipe: Recipe) -> dict[str, tuple[str, Any]]:
    """Return, for each option, the part of the recipe that has it and its annotation."""
    known: dict[str, tuple[str, Any]] = {"real": ("recipe", bool)}
    for name in _PARTS:
        part = getattr(recipe, name)
        if is_dataclass(part) and not isinstance(part, type):
            hints = get_type_hints(type(part))
            known |= {field.name: (name, hints[field.name]) for field in fields(part)}
    return known
