"""How a command's dataclass becomes its flags."""

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bitfactor.errors import InputError
from bitfactor.zoo import locate

T = TypeVar("T")

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]

Network = Annotated[
    Path,
    PrimitiveConstructorSpec[Path](
        nargs=1,
        metavar="FILE|NAME",
        instance_from_str=lambda words: locate(words[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    ),
]
"""A path, or the name of a network of the zoo, which stands for its file."""


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
