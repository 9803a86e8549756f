"""How a command's dataclass becomes its flags."""

import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bitfactor.cli.flags import Flag, complaint, expect_known, flags_of
from bitfactor.common.errors import InputError
from bitfactor.runtime.zoo import locate

T = TypeVar("T")

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]

OptionalOutput = Annotated[Path | None, tyro.conf.arg(aliases=["-o"])]

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


class _Printed(StringIO):
    """What would go to stdout, in characters that it can show."""

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Read `arguments` into the dataclass `kind`; its fields are the flags, their docstrings the help.

    Raises
    ------
    InputError
        If a flag is unknown, has no value or another than it takes, or is left out; or as the dataclass does.
    """
    expect_known(command, arguments, _flags(kind, default))
    parsed, unknown = _read(kind, command, arguments, default)
    if unknown:
        raise InputError(
            f"bitfactor {command}",
            expected="nothing more than its arguments and flags",
            found=" ".join(unknown),
            fix=f"see `bitfactor {command} --help`",
        )
    return parsed


def parse_known(kind: type[T], command: str, arguments: Sequence[str]) -> tuple[T, list[str]]:
    """Read as `parse` does, and return the flags with their values that `kind` does not have, too."""
    return _read(kind, command, arguments, None)


def _flags(kind: Any, default: Any) -> list[Flag]:
    return list(flags_of(kind) if default is None else flags_of(type(default), default))


def _read(kind: type[T], command: str, arguments: Sequence[str], default: T | None) -> tuple[T, list[str]]:
    helps = any(word in ("-h", "--help") for word in arguments)
    read: Any = partial(
        tyro.cli,
        kind,
        prog=f"bitfactor {command}",
        args=list(arguments),
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.FlagCreatePairsOff,) if helps else (),
        return_unknown_args=True,
    )
    printed = _Printed()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            parsed: tuple[T, list[str]] = read()
            return parsed
    except SystemExit as stop:
        if not stop.code:
            print(forward(printed.getvalue()), end="")
            raise
        error = stop.__context__
        while error is not None and not isinstance(error, InputError):
            error = error.__context__
        text = printed.getvalue()
        raise (error or complaint(command, arguments, _flags(kind, default), text)) from None


def forward(text: str) -> str:
    """Return help in which a flag that is on reads forward: `--[no-]real-ends`, and not `--no-real-ends`."""
    text = re.sub(
        r"^([│| ]+)--no-([a-z-]+)( {3,})",
        lambda m: f"{m[1]}--[no-]{m[2]}{m[3][2:]}",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"(\(default:[\s│|]*)True\)", r"\1on)  ", text)
    return re.sub(r"(\(default:[\s│|]*)False\)", r"\1off)  ", text)
