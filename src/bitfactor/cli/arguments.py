"""How a command's dataclass becomes its flags."""

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, TypeVar

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
    read = partial(
        tyro.cli,
        kind,
        prog=f"bitfactor {command}",
        args=arguments,
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            parsed: T = read()
    except SystemExit as stop:
        error = stop.__context__
        while error is not None and not isinstance(error, InputError):
            error = error.__context__
        if error is not None:
            raise error from None
        parsed = read()  # prints the help, or what is wrong
    return parsed
