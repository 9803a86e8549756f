"""`bitfactor bench FILE`: needs other engines only to compare with them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import bitfactor
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.chart import draw, expect_chart
from bitfactor.cli.output import print_json, print_table
from bitfactor.cli.rivals import Rival, Run, engines_of
from bitfactor.cli.timing import interleaved
from bitfactor.errors import InputError
from bitfactor.machine import processor
from bitfactor.runtime import Precision, Profile, Session


@dataclass(frozen=True)
class Arguments:
    """Time an exported network, one picture at a time, layer by layer; rivals run interleaved with it."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    against: tuple[Rival, ...] = ()
    """Also time its float twin (float32, bfloat16, int8) in: torch, onnxruntime, openvino."""
    isa: str | None = None
    """Instruction set to force; the best one otherwise."""
    precision: tuple[Precision, ...] = ("highest",)
    """Of real-valued convolutions, see `Session`. Of several, the first is what others are compared with."""
    threads: int = 1
    """Threads of each engine."""
    runs: int = 200
    """Timed runs of each."""
    chart: Path | None = None
    """Also draw the engines' times, as .png or .svg."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print the time of each layer, and minimum and median of each engine with their ratio to ours."""
    options = parse(Arguments, "bench", arguments)
    if options.runs < 1:
        raise InputError("--runs", expected="1 or more", found=str(options.runs), fix="change it")
    if options.chart is not None:
        expect_chart(options.chart)
    if not options.precision:
        raise InputError("--precision", expected="one or more", found="none", fix="leave it out, or name one")
    sessions = [
        Session(options.model, threads=options.threads, isa=options.isa, precision=precision)
        for precision in dict.fromkeys(options.precision)
    ]
    profile = sessions[0].profile(runs=options.runs)
    result = bench(sessions, options.against, options.runs)
    if options.chart is not None:
        draw(result["engines"], _caption(result), options.chart)
    if options.json:
        print_json({**result, "layers": _layers(profile)})
        return
    print(profile, end="\n\n")
    print_table(("engine", "minimum ms", "median ms", "times ours", "by median"), _rows(result["engines"]))
    print(_caption(result))


def bench(sessions: Sequence[Session], against: Sequence[Rival], runs: int) -> dict[str, Any]:
    """Time sessions of a file and its rivals in turns; returns machine, runs and the engines, ours first."""
    threads, graph = sessions[0].threads, sessions[0].model.graph
    x = np.random.default_rng(0).standard_normal((1, *sessions[0].input_shape), np.float32)
    engines: dict[str, Run] = {_name(session): partial(session, x) for session in sessions}
    for rival in against:
        engines |= engines_of(rival, graph, x, threads)
    return {
        "machine": processor(),
        "threads": threads,
        "runs": runs,
        "bitfactor": bitfactor.__version__,
        "engines": interleaved(engines, runs),
    }


def _name(session: Session) -> str:
    exact = session.precision == "highest"
    return f"bitfactor ({session.isa}{'' if exact else f', {session.precision}'})"


def _rows(engines: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    ours = engines[0]
    return [
        (
            engine["name"],
            f"{engine['minimum_ms']:.3f}",
            f"{engine['median_ms']:.3f}",
            f"{engine['minimum_ms'] / ours['minimum_ms']:.2f}",
            f"{engine['median_ms'] / ours['median_ms']:.2f}",
        )
        for engine in engines
    ]


def _caption(result: dict[str, Any]) -> str:
    threads = "one thread" if result["threads"] == 1 else f"{result['threads']} threads"
    return f"{result['machine']}, {threads}, batch 1, {result['runs']} interleaved runs"


def _layers(profile: Profile) -> list[dict[str, Any]]:
    return [{**asdict(layer), "macs_per_second": layer.rate} for layer in profile.layers]
