"""The one exception for input that is not what it should be."""

import importlib
import re
from collections.abc import Iterable
from typing import Any

# Others' messages and names in files have line breaks, and what steers a terminal.
_NO_TEXT = re.compile(r"\s*[\x00-\x1f\x7f-\x9f\u2028\u2029]\s*")


class InputError(ValueError):
    """A file, a name or an array given by the user is not usable.

    The message is one line: where, what was expected, what was found, what to do. The command line
    prints it and exits with status 2.

    Example
    -------
    >>> str(InputError("net.bin", expected="a model file", found="a JPEG image", fix="export one"))
    'net.bin: expected a model file, found a JPEG image; export one'
    """

    def __init__(self, where: object, *, expected: str, found: str, fix: str) -> None:
        where, expected, found = (_NO_TEXT.sub(" ", str(part)).strip() for part in (where, expected, found))
        super().__init__(f"{where}: expected {expected}, found {found}; {fix}")
        self.where, self.expected, self.found, self.fix = where, expected, found, fix

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args), vars(self)


class TerminatedError(Exception):
    """A run was asked to stop, and did so after a step, with a checkpoint written."""


def _again(kind: type[InputError], args: tuple[Any, ...]) -> InputError:
    """Return the error that a worker has handed back."""
    return kind.__new__(kind, *args)


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return the fix for a name that is not known: the names close to it, or else all of them."""
    known = list(known)
    import difflib  # here, for a quick import of the rest

    close = difflib.get_close_matches(name, known)
    return f"did you mean {' or '.join(close)}?" if close else f"known are: {', '.join(known)}"


def imported(module: str, where: object, extra: str) -> Any:
    """Return a module that needs a package of `bitfactor[extra]`; InputError if that is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).split(".")[0]
        if package == "bitfactor":
            raise
        raise InputError(
            where,
            expected=f"the package {package}",
            found="that it is not installed",
            fix=f"pip install 'bitfactor[{extra}]'",
        ) from error
