"""`bitfactor page FILE -o DIRECTORY`: needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from bitfactor.api.page import page
from bitfactor.cli.arguments import Network, Output, parse
from bitfactor.cli.output import call_and_print


@dataclass(frozen=True)
class Arguments:
    """Write a static web page that runs an exported network on photos and on the camera, in the browser."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    output: Output
    """Directory of the page."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Write the page, and print what it takes."""
    call_and_print(page, parse(Arguments, "page", arguments))
