"""The options of a recipe by name, and a network of the user's own in place of its: `my.py:Net`."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from bitfactor.binarization.binarization import BY_LAYER, Binarization, as_plain
from bitfactor.common.checks import checked, expect
from bitfactor.common.errors import InputError, near_matches
from bitfactor.common.files import digest, run_again, run_file
from bitfactor.data import DataSet
from bitfactor.nn.model import Example
from bitfactor.training import Classification, Recipe, without_effect


def with_options(recipe: Recipe, options: Mapping[str, Any]) -> Recipe:
    """Return `recipe` with other values for the options named; lists become tuples."""
    known = _owners(recipe)
    chosen: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in known:
            where = f"recipe {recipe.name}"
            raise InputError(where, expected="a known option", found=name, fix=near_matches(name, known))
        part, annotation = known[name]
        value = as_plain(name, value) if name in BY_LAYER else value
        value = tuple(value) if isinstance(value, list) else value
        expect(name, value, annotation)
        chosen.setdefault(part, {})[name] = value
    if binary := chosen.get("binarization"):
        both = {**vars(recipe.binarization), **binary}
        idle = without_effect(both["latent"], both["scale"]).keys() & _OF_ONE_KIND - binary.keys()
        binary |= {name: getattr(Binarization, name) for name in idle}  # the recipe's own give way
    changed = {
        part: replace(getattr(recipe, part), **values) for part, values in chosen.items() if part != "recipe"
    }
    return replace(recipe, **changed, **chosen.get("recipe", {}))


_OF_ONE_KIND = {"rank", "detach_alpha", "alpha_start"}  # of latents or scales, which refuse them otherwise


def option_values(recipe: Recipe) -> dict[str, Any]:
    """Return the options of a recipe by name, see `with_options`."""
    return {
        name: getattr(recipe if part == "recipe" else getattr(recipe, part), name)
        for name, (part, _) in _owners(recipe).items()
    }


def value_of(word: Any) -> Any:
    """Return the value that a word stands for, or several words; what is none is left as it is."""
    if isinstance(word, list | tuple):
        return tuple(map(value_of, word)) if len(word) != 1 else value_of(*word)
    if not isinstance(word, str):
        return word
    if len(parts := word.split()) > 1:
        return tuple(map(value_of, parts))
    if word in _WORDS:
        return _WORDS[word]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


_WORDS = {"on": True, "off": False, "None": None}


def _owners(recipe: Recipe) -> dict[str, tuple[str, Any]]:
    """Return, for each option, the part of the recipe that has it and its annotation."""
    known: dict[str, tuple[str, Any]] = {"real": ("recipe", bool)}
    for name, part in recipe.parts().items():
        if is_dataclass(part) and not isinstance(part, type):
            hints = get_type_hints(type(part))
            known |= {field.name: (name, hints[field.name]) for field in fields(part)}
    return known


@dataclass(frozen=True)
class OwnModel:
    """Builds the network that `spec`, FILE.py:NAME, names; `sha256` is that of the file when it was chosen.

    NAME is a class or a function without required arguments, or a module.
    """

    spec: str
    sha256: str = ""

    @classmethod
    def at(cls, spec: str, flag: str = "--model") -> "OwnModel":
        """Return the model of `spec`, which a flag names, its path from here, after a look at it."""
        file, name = _parts(spec, flag)
        _found(file, name)
        return cls(f"{Path(file).resolve()}:{name}", digest(Path(file)))

    def __call__(self) -> nn.Module:
        """Build the network."""
        file, name = _parts(self.spec)
        found = _found(str(run_again(file, self.sha256).__file__), name)
        model = deepcopy(found) if isinstance(found, nn.Module) else _called(self.spec, found)
        if not isinstance(model, nn.Module):
            raise _no_network(self.spec, f"a {type(model).__name__}")
        return model


def own_example(spec: str) -> Example:
    """Return what a file says a network is called with: a tensor, a tuple, a dict, or a function of these."""
    found = _named(*_parts(spec, "--example"))
    example = _called(spec, found) if callable(found) else found
    if not isinstance(example, Tensor | tuple | Mapping):
        raise InputError(
            spec,
            expected="a batch, a tuple of arguments or a dict of them by name",
            found=f"a {type(example).__name__}",
            fix="return what the network is called with",
        )
    return example


def is_spec(text: str) -> bool:
    """Return whether a word names a network of the user's own."""
    return ".py:" in text or text.endswith(".py")


@checked
def with_own_model(recipe: Recipe, options: dict[str, Any]) -> Recipe:
    """Return `recipe` with the network that a run's settings name, if they name one."""
    if "spec" not in options:
        return recipe
    return replace(recipe, model=OwnModel(**options), adapt=_expect_fit, sizes=None)


def _expect_fit(recipe: Recipe, data: DataSet) -> Recipe:
    """Raise InputError where the network does not take the data's inputs or has not an output per class."""
    assert isinstance(recipe.model, OwnModel)
    model = recipe.model().eval()
    try:
        with torch.inference_mode():
            outputs = model(torch.zeros(2, *recipe.input_shape))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        shape = f"(2, {', '.join(map(str, recipe.input_shape))})"
        raise InputError(
            recipe.model.spec, expected=f"a network that takes {shape}", found=found, fix="change it"
        ) from error
    if not isinstance(recipe.task, Classification):
        return recipe
    found = str(tuple(outputs.shape)) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
    if found != f"(2, {len(data.labels)})":
        raise InputError(
            recipe.model.spec,
            expected=f"outputs (2, {len(data.labels)}) for two images, one for each class",
            found=found,
            fix=f"give the last layer {len(data.labels)} outputs",
        )
    return recipe


def _parts(spec: str, flag: str = "--model") -> tuple[str, str]:
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise InputError(
            flag, expected="FILE.py:NAME", found=repr(spec), fix="name the file and what is in it"
        )
    return file, name


def _named(file: str, name: str) -> Any:
    """Return what a file calls `name`."""
    module = run_file(file)
    if not hasattr(module, name):
        known = [one for one, value in vars(module).items() if _is_own(value, module.__name__)]
        fix = near_matches(name, known) if known else "define it there"
        raise InputError(f"{file}:{name}", expected="a name in that file", found="none such", fix=fix)
    return getattr(module, name)


def _found(file: str, name: str) -> Any:
    """Return what a file calls `name`, if a network can come of it."""
    found, spec = _named(file, name), f"{file}:{name}"
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise _no_network(spec, f"a {type(found).__name__}")
    needed = [
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in (2, 4)  # *args, **kwargs
    ]
    if needed:
        raise InputError(
            spec,
            expected="a class or function without required arguments",
            found=f"one that needs {', '.join(needed)}",
            fix="give them defaults, or write a function that calls it",
        )
    return found


def _is_own(value: object, module: str) -> bool:
    return isinstance(value, nn.Module) or (callable(value) and getattr(value, "__module__", "") == module)


def _called(spec: str, build: Any) -> object:
    try:
        return build()
    except Exception as error:
        raise _no_network(spec, f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def _no_network(spec: str, found: str) -> InputError:
    return InputError(
        spec, expected="a torch module, or a class or function that gives one", found=found, fix="change it"
    )
