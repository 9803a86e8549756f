"""`bitfactor export RUN -o FILE`; of an exported file C needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from bitfactor.api.export import Format, write_network
from bitfactor.cli.arguments import Network, Output, parse
from bitfactor.cli.output import call_and_print
from bitfactor.format.low_precision import Real


@dataclass(frozen=True)
class Arguments:
    """Write a run's network as one file of 1-bit weights, checked against torch before it appears."""

    run: tyro.conf.Positional[Network]
    """Directory of a run; for ONNX and C, an exported file, or a network of `bitfactor zoo`, as well."""
    output: Output
    """File to write."""
    best: bool = False
    """Take the checkpoint of its best epoch in place of the last."""
    format: Format | None = None
    """A model file of bitfactor; standard ONNX; ONNX whose signs are QONNX's BipolarQuant; C99 for
    microcontrollers, with a header beside it. Left out, what the name's ending says."""
    real: Real = "float32"
    """How weights of real-valued layers are stored."""
    calibration: int = 0
    """Take ranges for precision `low` from so many training images."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Export and print the report."""
    call_and_print(write_network, parse(Arguments, "export", arguments))
