"""How a command's dataclass becomes its flags."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

T = TypeVar("T")

Output = Annotated[Path, tyro.conf.arg(aliases=["-o"])]


def parse(kind: type[T], command: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Read `arguments` into the dataclass `kind`; its fields are the flags, their docstrings the help."""
    return tyro.cli(
        kind,
        prog=f"bitfactor {command}",
        args=arguments,
        default=default,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
