"""The one exception for input that is not what it should be."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A file, a name or an array given by the user is not usable.

    The message is one line: where, what was expected, what was found, what to do. The command line
    prints it and exits with status 2.

    Example
    -------
    >>> raise InputError("net.safetensors", expected="a bitfactor model", found="a JPEG image",
    ...                  fix="write one with `bitfactor export`")
    Traceback (most recent call last):
    bitfactor.errors.InputError: net.safetensors: expected a bitfactor model, found a JPEG image; write one with `bitfactor export`
    """

    def __init__(self, where: object, *, expected: str, found: str, fix: str) -> None:
        super().__init__(f"{where}: expected {expected}, found {found}; {fix}")


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return the fix for a name that is not known: the names close to it, or else all of them.

    >>> near_matches("digit", ["digits", "cifar10-resnet18"])
    'did you mean digits?'
    """
    known = list(known)
    close = difflib.get_close_matches(name, known)
    return f"did you mean {' or '.join(close)}?" if close else f"known are: {', '.join(known)}"
