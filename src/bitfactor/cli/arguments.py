"""How a command's dataclass becomes its flags."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

T = TypeVar("T")

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Read `arguments` into the dataclass `kind`; its fields are the flags, their docstrings the help."""
    default_or_missing: Any = tyro.MISSING_NONPROP if default is None else default
    parsed: T = tyro.cli(
        kind,
        prog=f"bitfactor {command}",
        args=arguments,
        default=default_or_missing,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return parsed
