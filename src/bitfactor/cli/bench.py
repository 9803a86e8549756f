"""`bitfactor bench FILE`: needs torch only to compare with it."""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

import bitfactor
from bitfactor.cli.arguments import Network, parse
from bitfactor.cli.output import print_json, print_table
from bitfactor.errors import InputError
from bitfactor.runtime import Session


@dataclass(frozen=True)
class Arguments:
    """Time an exported network, one picture at a time on one thread; rivals run interleaved with it."""

    model: tyro.conf.Positional[Network]
    """Exported file, or a network of `bitfactor zoo`."""
    against: tuple[Literal["torch"], ...] = ()
    """Also time the same network in float32: torch."""
    isa: str | None = None
    """Instruction set to force; the best one otherwise."""
    runs: int = 200
    """Timed runs of each."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Print minimum and median time per picture, and the ratio to each rival."""
    options = parse(Arguments, "bench", arguments)
    if options.runs < 1:
        raise InputError("--runs", expected="1 or more", found=str(options.runs), fix="change it")
    result = bench(options.model, options.against, options.isa, options.runs)
    if options.json:
        print_json(result)
        return
    ours = result["engines"][0]
    rows = [
        (
            engine["name"],
            f"{engine['minimum_ms']:.3f}",
            f"{engine['median_ms']:.3f}",
            f"{engine['median_ms'] / ours['median_ms']:.1f}",
        )
        for engine in result["engines"]
    ]
    print_table(("engine", "minimum ms", "median ms", "times ours"), rows)
    print(f"{result['machine']}, one thread, batch 1, {result['runs']} interleaved runs")


def bench(model: Path, against: Sequence[str], isa: str | None, runs: int) -> dict[str, Any]:
    """Time the file and its rivals in turns; returns machine, runs and a list of engines, ours first."""
    session = Session(model, isa=isa)
    x = np.random.default_rng(0).standard_normal((1, *session.input_shape)).astype(np.float32)
    engines: dict[str, Callable[[], object]] = {f"bitfactor ({session.isa})": lambda: session(x)}
    for rival in against:
        name, run = _RIVALS[rival](session, x, model)
        engines[name] = run
    times = _interleaved(engines, runs)
    return {
        "machine": _machine(),
        "runs": runs,
        "bitfactor": bitfactor.__version__,
        "engines": [
            {"name": name, "minimum_ms": 1e3 * min(t), "median_ms": 1e3 * float(np.median(t))}
            for name, t in times.items()
        ],
    }


def _interleaved(engines: dict[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    for run in engines.values():
        for _ in range(10):
            run()
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(runs):
        for name, run in engines.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def _torch(session: Session, x: NDArray[Any], path: Path) -> tuple[str, Callable[[], object]]:
    """The recipe's network before it was made binary, in float32."""
    import torch

    from bitfactor.recipes import recipe_of_file

    torch.set_num_threads(1)
    twin = recipe_of_file(session.model, path).model().eval()
    tensor = torch.from_numpy(x)

    @torch.inference_mode()
    def run() -> object:
        return twin(tensor)

    return f"torch {torch.__version__} float32", run


_RIVALS = {"torch": _torch}


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
