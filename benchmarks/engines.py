"""Speed of whole networks against every engine that a user could pick instead, batch 1, on one core.

Untrained networks: time does not depend on what the weights are. ResNet-18 at 224 pixels (real-valued stem,
shortcuts and head) and the hourglass of the paper at 256 (128 channels, one stack, depth 4). Ours with the
best instruction set of this machine at each precision of the real-valued layers, float32, bfloat16
(`medium`) and 8-bit integers (`low`), and with each smaller set forced; other engines as in
`bitfactor.engines`. All run in turns, pinned to one core. Where there are two, ours with one and with
two threads follow.

With --throughput: images per second with 1, 8 and 32 of them at once on all cores, ours beside what other
engines do in 8 bits or with binary kernels.

    python benchmarks/engines.py [--core 1] [--runs 50] [--throughput] [--json FILE]

Needs the packages of bitfactor[train,bench].
"""

import argparse
import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import bitfactor
from bitfactor.api.bench import interleaved
from bitfactor.common.machine import cpu_name
from bitfactor.engines import engines_of
from bitfactor.recipes import recipe_named
from bitfactor.runtime import Precision, Session, instruction_sets
from bitfactor.training import build

NETWORKS = {"ResNet-18 at 224": "imagenet-resnet18", "hourglass at 256": "mpii-hourglass"}
ENGINES = ("torch", "onnxruntime", "openvino")
TWO_THREADS = 1.7  # times as fast as one, on two cores
# By network: words of the name of one of ours, of another engine's, and how many times as fast ours is to be.
GOALS = {
    "ResNet-18 at 224": [
        ("amx low", "OpenVINO int8", 1.8),
        ("avx512 low", "OpenVINO int8", 2.6),
        ("avx512 low", "OpenVINO BinaryConvolution", 1.5),
        ("amx medium", "ONNX Runtime int8", 2.5),
        ("amx medium", "ONNX Runtime float32", 13.0),
        ("avx512 highest", "OpenVINO BinaryConvolution", 1.0),
    ],
    "hourglass at 256": [
        ("amx low", "OpenVINO int8", 1.3),
        ("amx medium", "ONNX Runtime int8", 6.0),
        ("amx medium", "ONNX Runtime float32", 17.0),
        ("avx512 highest", "OpenVINO BinaryConvolution", 1.0),
    ],
}


def exported(recipe_name: str, folder: Path) -> Path:
    torch.manual_seed(0)
    recipe = recipe_named(recipe_name)
    model, x = build(recipe), torch.randn(2, *recipe.input_shape)
    model.train()(x)
    path = folder / f"{recipe_name}.safetensors"
    bitfactor.export(model.eval(), path, x, calibration=x)
    return path


def measured(path: Path, runs: int) -> list[dict]:
    best, *smaller = (isa for isa in instruction_sets() if isa != "scalar")
    chosen: list[tuple[str, Precision]] = [(best, precision) for precision in ("low", "medium", "highest")]
    chosen += [(isa, precision) for isa in smaller for precision in ("low", "highest")]
    sessions = {
        f"bitfactor {isa} {precision}": Session(path, threads=1, isa=isa, precision=precision)
        for isa, precision in chosen
    }
    session = next(iter(sessions.values()))
    x = np.random.default_rng(0).standard_normal((1, *session.input_shape), np.float32)
    engines = {name: lambda session=session: session(x) for name, session in sessions.items()}
    for engine in ENGINES:
        engines |= engines_of(engine, session.model.graph, x, threads=1)
    return interleaved(engines, runs)


def measured_threads(path: Path, runs: int) -> list[dict]:
    two, one = (Session(path, threads, precision="low") for threads in (2, 1))
    x = np.random.default_rng(0).standard_normal((1, *one.input_shape), np.float32)
    return interleaved({"two threads": lambda: two(x), "one thread": lambda: one(x)}, 10 * runs)


def measured_throughput(path: Path, runs: int, samples: int) -> list[dict]:
    """As `interleaved`, with the images per second of the fastest run."""
    threads = len(os.sched_getaffinity(0))
    sessions = {precision: Session(path, threads, precision=precision) for precision in ("low", "highest")}
    first = sessions["low"]
    x = np.random.default_rng(0).standard_normal((samples, *first.input_shape), np.float32)
    engines = {f"bitfactor {first.isa} {name}": lambda s=session: s(x) for name, session in sessions.items()}
    for engine in ENGINES[1:]:
        others = engines_of(engine, first.model.graph, x, threads)
        engines |= {
            name: run for name, run in others.items() if name.split()[-1] in ("int8", "BinaryConvolution")
        }
    found = interleaved(engines, runs, pause=0.1)
    return [
        {**one, "samples": samples, "images_per_second": 1e3 * samples / one["minimum_ms"]} for one in found
    ]


def report_throughput(network: str, found: list[dict]) -> None:
    print(f"\n{network:40} {'images':>6} {'images/s':>10} {'times ours':>10}")
    for one in found:
        ours = next(other for other in found if other["samples"] == one["samples"])
        ratio = ours["images_per_second"] / one["images_per_second"]
        print(
            f"{one['name']:40} {one['samples']:6} {one['images_per_second']:10.1f} {ratio:10.2f}", flush=True
        )


def find(engines: list[dict], words: str) -> dict | None:
    return next((e for e in engines if set(words.split()) <= set(e["name"].split())), None)


def outcome(ours: dict, other: dict, goal: float) -> dict:
    """The ratio of minima and of medians."""
    minimum, median = (other[key] / ours[key] for key in ("minimum_ms", "median_ms"))
    met = min(minimum, median) >= goal
    names = {"ours": ours["name"], "other": other["name"]}
    return {**names, "goal": goal, "minimum": minimum, "median": median, "met": met}


def outcomes(network: str, engines: list[dict], threads: list[dict]) -> list[dict]:
    """What became of each goal; a set that this machine lacks has none."""
    pairs = [
        (find(engines, f"bitfactor {ours}"), find(engines, other), goal)
        for ours, other, goal in GOALS[network]
    ]
    if threads:
        pairs.append((*threads, TWO_THREADS))
    return [outcome(ours, other, goal) for ours, other, goal in pairs if ours and other]


def report(network: str, engines: list[dict], goals: list[dict]) -> None:
    print(f"\n{network:40} {'minimum ms':>10} {'median ms':>10} {'times ours':>10} {'by median':>10}")
    ours = engines[0]
    for engine in engines:
        ratios = (engine[key] / ours[key] for key in ("minimum_ms", "median_ms"))
        times = f"{engine['minimum_ms']:10.3f} {engine['median_ms']:10.3f}"
        print(f"{engine['name']:40} {times} {' '.join(f'{ratio:10.2f}' for ratio in ratios)}")
    for goal in goals:
        print(
            f"{'met' if goal['met'] else 'MISSED':6} {goal['ours']} over {goal['other']}:"
            f" {goal['minimum']:.2f} by minimum, {goal['median']:.2f} by median, goal {goal['goal']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--throughput", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    results = {}
    versions = " ".join(f"{name} {version(name)}" for name in ("numpy", *ENGINES))
    print(f"{cpu_name()}, core {options.core}, {options.runs} interleaved runs; {versions}")
    for network, recipe in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = exported(recipe, Path(folder))
            if options.throughput:
                found = [one for n in (1, 8, 32) for one in measured_throughput(path, options.runs, n)]
                report_throughput(network, found)
                results[network] = {"throughput": found}
                continue
            os.sched_setaffinity(0, {options.core})
            engines = measured(path, options.runs)
            os.sched_setaffinity(0, cores)
            threads = measured_threads(path, options.runs) if len(cores) > 1 else []
        goals = outcomes(network, engines, threads)
        report(network, engines, goals)
        results[network] = {"engines": engines, "threads": threads, "goals": goals}
    if options.json is not None:
        document = {"machine": cpu_name(), "versions": versions, "networks": results}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
