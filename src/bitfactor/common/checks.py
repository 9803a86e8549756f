"""Options and arguments, checked against their annotations: one mechanism for every public name.

An annotation says what is allowed. A `Literal` allows its values, `int` integers but no bool, and `float`
finite numbers. A `tuple` or `Sequence` allows its elements, a class its instances. What cannot be checked is
let through.
"""

import collections.abc
import functools
import inspect
import math
import numbers
import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from bitfactor.common.errors import InputError, near_matches

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NAMES: dict[Any, str] = {
    bool: "True or False",
    int: "an integer",
    float: "a finite number",
    str: "a string",
    bytes: "bytes",
    Path: "a path",
    type(None): "None",
    collections.abc.Callable: "a function",
}


def expect_one_of(where: str, value: object, known: Collection[object]) -> None:
    """Raise InputError unless `value` is one of `known`; the message lists near matches."""
    expect(where, value, Literal[(*known,)])


def expect(where: str, value: object, annotation: Any) -> None:
    """Raise InputError unless `value` is what `annotation` says; `where` names it in the message."""
    if _fits(value, annotation):
        return
    raise InputError(
        where,
        expected=described(annotation),
        found=shown(value),
        fix=_fix(value, annotation, choices_in(annotation)),
    )


def choices_in(annotation: Any) -> list[object]:
    """Return the values that an annotation lists, those of its elements too."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = [part for part in get_args(annotation) if part is not Ellipsis]
    return [one for part in parts for one in choices_in(part)]


def expect_that(fits: bool, where: object, *, expected: str, found: object, fix: str = "change it") -> None:
    """Raise InputError unless `fits`."""
    if not fits:
        raise InputError(where, expected=expected, found=str(found), fix=fix)


def expect_text(where: object, text: str) -> None:
    """Raise InputError unless every target can hold the text: in UTF-8, which ends before a zero."""
    fits = "\0" not in text and text.encode("utf-8", "ignore").decode() == text
    expect_that(fits, where, expected="text without a zero or half a letter", found=ascii(text))


def check_fields(options: Any, where: str = "") -> None:
    """Check each field of a frozen dataclass, in its `__post_init__`; lists, as in JSON, become tuples."""
    hints = _hints(type(options))  # type: ignore[arg-type]
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, list) and any(get_origin(part) is tuple for part in _members(hints[field.name])):
            value = tuple(value)
            object.__setattr__(options, field.name, value)
        expect(f"{where}{field.name}", value, hints[field.name])


def options_from(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return `kind(**values)`; an unknown name is an InputError with the names close to it.

    `where` says whose options they are.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise InputError(where, expected="a known option", found=name, fix=near_matches(name, known))
    return kind(**values)


def record(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the dataclass from which `result.plain` made `values`, also after they went through JSON.

    A field that did not exist yet when they were stored has its default.
    """
    hints = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _restored(value, hints.get(name, Any)) for name, value in values.items()})


def as_tuples(value: Any) -> Any:
    """Return a value with its lists as tuples, as options have them: JSON has lists alone."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def _restored(value: Any, annotation: Any) -> Any:
    for part in _members(annotation):
        origin, args = get_origin(part), get_args(part)
        if is_dataclass(part) and isinstance(value, Mapping):
            return record(part, value)  # type: ignore[arg-type]
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(_restored(one, args[0]) for one in value)
        if origin in (collections.abc.Mapping, dict) and isinstance(value, Mapping):
            return {name: _restored(one, args[1]) for name, one in value.items()}
    return value


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function say in one sentence that an argument is missing, unknown or of another type."""
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def with_checks(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = _bound(signature, name, args, kwargs)
        hints = _hints(function)
        for argument, value in bound.arguments.items():
            kind = signature.parameters[argument].kind
            if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                continue
            if argument in hints:
                expect(f"{name}({argument})", value, hints[argument])
        return function(*args, **kwargs)

    return with_checks


_hints = functools.cache(get_type_hints)


def _bound(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [p for p in signature.parameters if p not in ("self", "cls")]
        unknown = [word for word in kwargs if word not in known]
        fix = near_matches(unknown[0], known) if unknown else f"it takes {', '.join(known)}"
        raise InputError(f"{name}()", expected="its own arguments", found=str(error), fix=fix) from None


def _fits(value: object, annotation: Any) -> bool:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is tuple:
        return isinstance(value, tuple) and _elements_fit(value, args)
    if origin in (collections.abc.Sequence, collections.abc.Iterable):
        return isinstance(value, origin) and not isinstance(value, str | bytes) and _all_fit(value, args)
    if origin is collections.abc.Mapping or origin is dict:
        return isinstance(value, origin) and all(_fits(k, args[0]) for k in value)
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is bool or (isinstance(value, bool) and annotation in (int, float)):
        return annotation is bool and isinstance(value, bool)
    if annotation is int:
        return isinstance(value, numbers.Integral)
    if annotation is float:
        return isinstance(value, numbers.Real) and math.isfinite(value)
    if annotation is collections.abc.Callable or origin is collections.abc.Callable:
        return callable(value)
    kind = annotation if origin is None else origin
    return not _can_be_checked(kind) or isinstance(value, kind)


def _can_be_checked(kind: Any) -> bool:
    if not isinstance(kind, type) or kind is Any:
        return False
    return not getattr(kind, "_is_protocol", False) or getattr(kind, "_is_runtime_protocol", False)


def _elements_fit(values: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(_fits(one, args[0]) for one in values)
    return len(values) == len(args) and all(map(_fits, values, args))


def _all_fit(values: Any, args: tuple[Any, ...]) -> bool:
    # Only what can be looked at twice: an iterator would be used up.
    if not args or not isinstance(values, collections.abc.Collection):
        return True
    return all(_fits(one, args[0]) for one in values)


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def described(annotation: Any) -> str:
    """Return what an annotation allows, in words."""
    *others, last = dict.fromkeys(_described(part) for part in _members(annotation))
    return f"{', '.join(others)} or {last}" if others else last


def _described(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin is tuple and args[-1] is not Ellipsis:
        return f"{len(args)} of ({', '.join(map(described, args))})"
    if origin in (tuple, collections.abc.Sequence, collections.abc.Iterable):
        several = args and args[0] not in (Any, object)
        return f"a sequence (each {described(args[0])})" if several else "a sequence"
    if origin in (dict, collections.abc.Mapping):
        return "a dict"
    kind = annotation if origin is None else origin
    if kind in _NAMES:
        return _NAMES[kind]
    if kind is os.PathLike:
        return "a path"
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _fix(value: object, annotation: Any, choices: Collection[object]) -> str:
    members = _members(annotation)
    if isinstance(value, str) and any(part in (int, float) for part in members) and _is_number(value):
        return f"write {value} without quotes"
    if choices:
        return _near(value, [str(one) for one in choices])
    if isinstance(value, bool):
        return "pass a value, not a yes or no"
    return "pass that"


def _near(value: object, names: Collection[str]) -> str:
    return near_matches(value, names) if isinstance(value, str) else "choose one of them"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(value: object) -> str:
    """Return a value as a message shows it: short, and with its type where that is not plain."""
    text = " ".join(repr(value).split())
    if len(text) > 60:
        text = f"{text[:57]}..."
    plain = value is None or isinstance(value, str | bool | int | float)
    return text if plain else f"{text} ({type(value).__name__})"


_own: dict[tuple[str, str], object] = {}  # (table, name) -> the object that users added


def expect_new_name(where: str, name: object, known: Collection[str]) -> None:
    """Raise InputError unless this is a name of letters, digits and _ that is not taken."""
    if not isinstance(name, str) or not name.isidentifier() or name in known:
        raise InputError(
            where, expected="a new name of letters, digits and _", found=shown(name), fix="rename it"
        )


def name_of(
    where: str, value: object, known: Collection[str], add: Callable[[str], None], *, table: str = ""
) -> str:
    """Return the name of an entry of a table; what is no name is added under the name that it was defined by.

    One that was defined anew in its module, as in a notebook, takes the place of what it was.
    """
    if isinstance(value, str) or not (callable(value) or isinstance(value, type)):
        expect_one_of(where, value, known)
        return str(value)
    table = table or where
    for (of, name), one in _own.items():
        if of == table and one is value and name in known:
            return name
    name = getattr(value, "__name__", type(value).__name__)
    anew = _is_defined_anew(_own.get((table, name)), value)
    if not anew and (not name.isidentifier() or name in known):
        found = f"one whose name is {name!r}"
        raise InputError(where, expected="a name of its own", found=found, fix="register it under one")
    add(name)
    remember(table, name, value)
    return name


def expect_sound(where: str, build: object, faults: Iterator[dict[str, str]]) -> None:
    """Raise InputError with the first fault of a function of the user's own, or what it raises."""
    expect(where, build, Callable[..., object])
    try:
        fault = next(iter(faults), None)
    except Exception as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())}"
        expected, fix = "what runs on drawn values", "call it on a tensor yourself"
        raise InputError(where, expected=expected, found=found, fix=fix) from error
    if fault is not None:
        raise InputError(where, **fault)


def remember(table: str, name: str, value: object) -> None:
    """Let an object stand for its name in a table, from now on."""
    _own[table, name] = value


def _is_defined_anew(before: object, after: object) -> bool:
    """Whether both are what one place of a module's source defines."""
    if before is None:
        return False
    places = {(getattr(x, "__module__", None), getattr(x, "__qualname__", None)) for x in (before, after)}
    module, name = places.pop()
    return not places and module is not None and name is not None and "<" not in name


def expect_within(found: int, max_bytes: int | None, what: str) -> None:
    """Raise InputError where something would take more than `max_bytes`."""
    if max_bytes is not None and found > max_bytes:
        raise InputError(
            "max_bytes",
            expected=f"at most {max_bytes} bytes",
            found=f"{what} of {found}",
            fix="allow more, if you trust the file",
        )
