"""`bitfactor convert NET.onnx -o NET.safetensors`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.convert import convert
from bitfactor.cli.arguments import Output, parse
from bitfactor.cli.output import call_and_print


@dataclass(frozen=True)
class Arguments:
    """Write a binary network that comes as ONNX as one file of 1-bit weights, checked before it appears."""

    network: tyro.conf.Positional[Path]
    """ONNX file: of QONNX, Brevitas, FINN, of larq by tf2onnx, or of bitfactor."""
    output: Output
    """File to write, NAME.safetensors."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Convert and print the report."""
    call_and_print(convert, parse(Arguments, "convert", arguments))
