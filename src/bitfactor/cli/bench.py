"""`bitfactor bench FILE`: needs other engines only to compare with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from bitfactor.api.bench import bench, draw, expect_chart
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.output import print_result
from bitfactor.common.errors import InputError
from bitfactor.engines import Engine
from bitfactor.runtime import Precision


@dataclass(frozen=True)
class Arguments:
    """Time an exported network, one image at a time, layer by layer; other engines take turns with it."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    against: tuple[Engine, ...] = ()
    """Also time its full-precision baseline (float32, bfloat16, int8) in: torch, onnxruntime, openvino."""
    isa: str | None = None
    """Instruction set to force; the best one otherwise."""
    precision: tuple[Precision, ...] = ("highest",)
    """Of full-precision layers, see `Session`. Of several, the first is what others are compared with."""
    threads: int = 1
    """Threads of each engine."""
    runs: int = 200
    """Timed runs of each."""
    chart: Path | None = None
    """Also draw the engines' latencies, as .png or .svg."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the time of each layer, and minimum and median of each engine with their ratio to ours."""
    options = parse(Arguments, "bench", arguments)
    if options.chart is not None:
        expect_chart(options.chart)
    if not options.precision:
        raise InputError("--precision", expected="one or more", found="none", fix="leave it out, or name one")
    report = bench(
        options.model,
        against=options.against,
        runs=options.runs,
        threads=options.threads,
        isa=options.isa,
        precision=options.precision,
    )
    if options.chart is not None:
        draw(report.engines, report.caption, options.chart)
    print_result(report, as_json=options.json)
