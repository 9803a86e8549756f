"""`bitfactor inspect FILE`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.inspect import inspect
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.output import print_result
from bitfactor.common.files import replacing
from bitfactor.format.drawing import svg


@dataclass(frozen=True)
class Arguments:
    """Show what an exported file holds: its origin, every operation, bytes and multiply-accumulates."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    svg: Path | None = None
    """Also draw the network, as an SVG image."""
    program: bool = False
    """Show the instructions for the compiled core, which `bitfactor freeze` writes."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the description, and write the drawing."""
    options = parse(Arguments, "inspect", arguments)
    found = inspect(options.model, program=options.program)
    if options.svg is not None:
        drawn = svg(found.model, options.model.name)
        with replacing(options.svg) as temporary:
            temporary.write_text(drawn, encoding="utf-8")
    print_result(found, as_json=options.json)
