"""How a command's dataclass becomes its flags."""

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from bitfactor.errors import InputError

T = TypeVar("T")

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Read `arguments` into the dataclass `kind`; its fields are the flags, their docstrings the help.

    Raises
    ------
    InputError
        As the dataclass does.
    """
    parsed: T = _read(kind, command, arguments, tyro.MISSING_NONPROP if default is None else default)
    return parsed


def parse_known(kind: type[T], command: str, arguments: Sequence[str]) -> tuple[T, list[str]]:
    """Read as `parse` does, and return the flags with their values that `kind` does not have, too."""
    parsed: tuple[T, list[str]] = _read(
        kind, command, arguments, tyro.MISSING_NONPROP, return_unknown_args=True
    )
    return parsed


def _read(kind: Any, command: str, arguments: Sequence[str], default: Any, **more: bool) -> Any:
    read = partial(
        tyro.cli,
        kind,
        prog=f"bitfactor {command}",
        args=arguments,
        default=default,
        config=(tyro.conf.FlagCreatePairsOff,),
        **more,
    )
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            return read()
    except SystemExit as stop:
        error = stop.__context__
        while error is not None and not isinstance(error, InputError):
            error = error.__context__
        if error is not None:
            raise error from None
        return read()  # prints the help, or what is wrong
