"""Tables of names that users add to: an object may stand wherever a name may."""

from collections.abc import Callable, Collection, Iterator

from bitfactor.common.checks import expect_one_of, shown
from bitfactor.common.errors import InputError

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

    >>> name_of("latent", Hadamard, LAYERWISE, add)
    'Hadamard'
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


def expect_sound(where: str, faults: Iterator[dict[str, str]]) -> None:
    """Raise InputError with the first fault, and with an error that the user's own code raises."""
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
