"""`bitfactor freeze FILE -o NET.bfp`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from bitfactor.api.freeze import freeze
from bitfactor.cli.arguments import Network, Output, parse
from bitfactor.cli.output import call_and_print


@dataclass(frozen=True)
class Arguments:
    """Write an exported network as one flat program, which the C library runs from memory as it is."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    output: Output
    """File to write, NAME.bfp."""
    size: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="H W")] = None
    """Height and width of the input; the file's own if left out."""
    threads: int = 1
    """Threads that run it, unless the program that loads it says otherwise."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Write the program, and print what it takes."""
    call_and_print(freeze, parse(Arguments, "freeze", arguments))
