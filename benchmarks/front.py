"""Measure binary networks beside the compact ones that a user would pick instead, on kinds of target.

The networks are those of `docs/results/front-published.csv`, which has their published top-1 on ImageNet.
Weights are drawn: latency does not depend on them. Binary ones are of `bitfactor.models`. The others are
timm's, exported to ONNX; for int8 they are quantised per channel by onnxruntime.quantization (QDQ), with
noise for the ranges. Each runs in the fastest of OpenVINO (float32, bfloat16) and ONNX Runtime.

All networks of a target take turns, pinned to one core (`threads`: to two). `avx512` and `avx2` force smaller
instruction sets: ours by its own switch, OpenVINO's by ONEDNN_MAX_CPU_ISA, which its convolutions obey and
some of its element-wise steps do not. ONNX Runtime has no such switch and is left out there. What the machine
lacks is left out, and said. A target that the results have already is not measured again.

    python benchmarks/front.py [--targets native avx512 avx2 threads batch web] [--core 1] [--runs 30]
    python docs/results/front.py             # the page and its charts, from the results

Needs the packages of bitfactor[train,bench] and timm; `web` also node 20 and npm, and, for LiteRT.js,
litert-torch.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import timeit
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from csv import DictReader
from dataclasses import dataclass, field
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import numpy as np
import onnx

ROOT = Path(__file__).parents[1]
RESULTS, PUBLISHED = ROOT / "docs/results/front.json", ROOT / "docs/results/front-published.csv"
SIDE = 224


@dataclass(frozen=True)
class Target:
    """Where the networks run; `environment` holds other engines back to the instruction set `isa`."""

    isa: str | None = None
    threads: int = 1
    batch: int = 1
    environment: dict[str, str] = field(default_factory=dict)


TARGETS = {
    "native": Target(),
    "avx512": Target("avx512", environment={"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}),
    "avx2": Target("avx2", environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "threads": Target(threads=2),
    "batch": Target(batch=32),
    "web": Target(),
}
# Network: its function in bitfactor.models, and options of binarize_.
BINARY = {
    "Bi-Real-18": ("bireal18", {}),
    "Bi-Real-34": ("bireal34", {}),
    "QuickNetSmall": ("quicknet_small", {"scale": "none", "padding_value": 1}),
    "QuickNet": ("quicknet", {"scale": "none", "padding_value": 1}),
    "QuickNetLarge": ("quicknet_large", {"scale": "none", "padding_value": 1}),
    "ReActNet-18": ("reactnet18", {}),
    "ReActNet-A": ("reactnet_a", {}),
    "BNext-T": ("bnext_tiny", {}),
}
# Network: options of the recipe imagenet-resnet18.
RESNET18 = {
    "ResNet-18 of the paper": {},
    "Real-to-Binary": {"activation": "prelu", "shortcuts": "conv", "gates": True},
}
TIMM = {
    "MobileNetV3-small": "mobilenetv3_small_100",
    "MobileNetV3-large": "mobilenetv3_large_100",
    "MobileNetV2": "mobilenetv2_100",
    "MobileNetV4-Conv-S": "mobilenetv4_conv_small",
    "EfficientNet-Lite0": "efficientnet_lite0",
    "RegNetX-200MF": "regnetx_002",
    "MobileOne-S0": "mobileone_s0",
    "MobileOne-S1": "mobileone_s1",
    "ResNet-18": "resnet18",
    "ResNet-50": "resnet50",
}
PAUSE = {1: 0.0, 2: 0.03}  # seconds for each number of threads, until those of the last engine sleep
FEWER = 6  # times as few runs of a batch, which are long
PROBES = 3
NEAR = 1.15  # times as long as the fastest engine, which a network's slower ones need to stay
VERSIONS = ("numpy", "torch", "onnxruntime", "openvino", "timm")


def published() -> list[tuple[str, str]]:
    """Return each network with the kind of its weights."""
    with PUBLISHED.open() as file:
        return [(row["network"], row["weights"]) for row in DictReader(file)]


def file_of(network: str, weights: str, folder: Path) -> Path:
    """Return the file of a network, written if it is not there."""
    endings = {"1 bit": ".safetensors", "int8": "-int8.onnx", "float": ".onnx"}
    path = folder / (network.replace(" ", "-") + endings[weights])
    if not path.exists():
        print(f"writing {path}", file=sys.stderr, flush=True)
        WRITERS[weights](network, path)
    return path


def _write_binary(network: str, path: Path) -> None:
    import torch

    import bitfactor

    torch.manual_seed(0)
    if network in BINARY:
        name, options = BINARY[network]
        model = getattr(bitfactor.models, name)()
        real = model.keep_real() if hasattr(model, "keep_real") else []
        bitfactor.binarize_(model, **{"latent": "none", "scale": "analytic", "keep_real": real, **options})
    else:
        from bitfactor.recipes import recipe_named
        from bitfactor.recipes.own import with_options
        from bitfactor.training import build

        model = build(with_options(recipe_named("imagenet-resnet18"), RESNET18[network]))
    x = torch.randn(2, 3, SIDE, SIDE)
    model.train()(x)
    bitfactor.export(model.eval(), path, x, calibration=x)


def _write_float(network: str, path: Path) -> None:
    import torch

    from bitfactor.engines.with_onnxruntime import with_batch

    model = _of_timm(TIMM[network])
    example, shapes = (torch.randn(2, 3, SIDE, SIDE),), ({0: "n"},)
    proto = torch.onnx.export(model, example, dynamo=True, dynamic_shapes=shapes, verbose=False).model_proto
    del proto.graph.value_info[:]  # of any batch
    onnx.save(with_batch(proto, 1), path)


def _write_int8(network: str, path: Path) -> None:
    from bitfactor.engines.with_onnxruntime import noise, quantised

    proto = onnx.load(file_of(network, "float", path.parent))
    onnx.save(quantised(proto, noise((1, 3, SIDE, SIDE))), path)


WRITERS: dict[str, Callable[[str, Path], None]] = {
    "1 bit": _write_binary,
    "int8": _write_int8,
    "float": _write_float,
}


class _NoTorchvision(MetaPathFinder, Loader):
    """Let timm be imported without torchvision, whose wheel does not load beside a CPU build of torch."""

    def find_spec(self, name, path, target=None):  # type: ignore[no-untyped-def]
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchvision" else None

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        module = types.ModuleType(spec.name)
        module.__getattr__ = _any_class  # type: ignore[method-assign]
        return module

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        pass


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> str:
        return name


def _any_class(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _AnyAttribute(name, (), {"__init__": lambda self, *values, **options: None})


def _of_timm(name: str):  # type: ignore[no-untyped-def]
    if find_spec("torchvision") is None:
        sys.meta_path.insert(0, _NoTorchvision())
    import timm
    import torch
    from timm.utils.model import reparameterize_model

    torch.manual_seed(0)
    model = timm.create_model(name, exportable=True).eval()
    for norm in model.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):  # some start at 0, and converters drop what is 0
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return reparameterize_model(model)


Engines = dict[tuple[str, str, str], Callable[[], object]]
"""(network, weights, engine) -> a call that runs it."""


def ours(path: Path, target: Target) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the engine's name and its call for each precision of the real-valued layers."""
    from bitfactor.runtime import Precision, Session

    x = images(target)
    precisions: tuple[Precision, ...] = ("highest", "low")
    for precision in precisions:
        session = Session(path, threads=target.threads, isa=target.isa, precision=precision)
        yield f"bitfactor {session.isa}{', low' if precision == 'low' else ''}", partial(session, x)


def others(path: Path, weights: str, target: Target) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the engine's name and its call: each engine in each way to run a network's file."""
    from bitfactor.engines import with_onnxruntime, with_openvino

    x, batches = images(target), {1, target.batch}
    for batch in sorted(batches):
        proto = with_onnxruntime.with_batch(onnx.load(path), batch)
        for hint in ("f32", "bf16") if weights == "float" else ("f32",):
            try:
                network = with_openvino.network(proto, target.threads, hint)
            except RuntimeError:  # bf16, held back to AVX2
                continue
            dtype = {"f32": "float32", "bf16": "bfloat16"}[hint] if weights == "float" else "int8"
            yield f"OpenVINO {dtype}, {batch} at once", partial(in_parts, network, x, batch)
        if target.isa is None:
            network = with_onnxruntime.network(proto, target.threads)
            dtype = "float32" if weights == "float" else "int8"
            yield f"ONNX Runtime {dtype}, {batch} at once", partial(in_parts, network, x, batch)


def images(target: Target) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((target.batch, 3, SIDE, SIDE), np.float32)


def in_parts(network: Callable[[np.ndarray], np.ndarray], x: np.ndarray, batch: int) -> None:
    for first in range(0, len(x), batch):
        network(x[first : first + batch])


def measured(name: str, networks: Sequence[tuple[str, str]], folder: Path, runs: int) -> list[dict]:
    """Time all networks of a target in turns; the fastest engine of each, ours in each precision."""
    from bitfactor.api.bench import interleaved

    target = TARGETS[name]
    engines: Engines = {}
    for network, weights in networks:
        path = file_of(network, weights, folder)
        found = ours(path, target) if weights == "1 bit" else others(path, weights, target)
        engines |= {(network, weights, engine): call for engine, call in found}
    kept = near(engines)
    calls = dict(zip(map(str, kept), kept.values(), strict=True))
    if target.batch > 1:
        times = interleaved(calls, rounds(target, runs), warm_up=1)
    else:
        times = interleaved(calls, runs, PAUSE[target.threads])
    return fastest(
        {
            "network": network,
            "weights": weights,
            "engine": engine.removesuffix(", 1 at once") if target.batch == 1 else engine,
            "minimum_ms": time["minimum_ms"] / target.batch,
            "median_ms": time["median_ms"] / target.batch,
            "bytes": file_of(network, weights, folder).stat().st_size,
        }
        for (network, weights, engine), time in zip(kept, times, strict=True)
    )


def rounds(target: Target, runs: int) -> int:
    """Return how many runs each network has."""
    return runs if target.batch == 1 else max(runs // FEWER, 1)


def near(engines: Engines) -> Engines:
    """Return ours, and those of others' engines that come near the fastest for the same network."""
    times = {key: min(timeit.repeat(call, number=1, repeat=PROBES)) for key, call in engines.items()}
    best: dict[tuple[str, str], float] = {}
    for (network, weights, _), seconds in times.items():
        best[network, weights] = min(seconds, best.get((network, weights), seconds))
    return {
        key: call
        for key, call in engines.items()
        if key[1] == "1 bit" or times[key] <= NEAR * best[key[0], key[1]]
    }


def fastest(rows: Iterable[dict]) -> list[dict]:
    """Return ours as they are, and of others' engines for the same network the fastest."""
    found = list(rows)
    best: dict[tuple[str, str], dict] = {}
    for row in sorted(found, key=lambda row: row["minimum_ms"]):
        best.setdefault((row["network"], row["weights"]), row)
    return [row for row in found if row["weights"] == "1 bit" or row is best[row["network"], row["weights"]]]


def measured_web(networks: Sequence[tuple[str, str]], folder: Path, runs: int) -> list[dict]:
    """Time all networks in node's WebAssembly, in turns; the fastest engine of each."""
    import web

    files = {str(path): one for one in networks for path in web_files(*one, folder)}
    (rows,) = web.measured([list(files)], folder, runs, 1)
    return fastest(
        {
            "network": files[row["file"]][0],
            "weights": files[row["file"]][1],
            "engine": row["name"],
            "minimum_ms": row["minimum_ms"],
            "median_ms": row["median_ms"],
            "bytes": file_of(*files[row["file"]], folder).stat().st_size,
        }
        for row in rows
    )


def web_files(network: str, weights: str, folder: Path) -> list[Path]:
    """Return a network's files for each engine in WebAssembly, written if they are not there."""
    path = file_of(network, weights, folder)
    endings = {"1 bit": [".bfp"], "int8": [".tflite"], "float": [".tflite", ".json"]}[weights]
    made = [path.with_suffix(ending) for ending in endings]
    for one in made:
        if not one.exists():
            WEB_WRITERS[one.suffix](network, path, one)
    return [*([] if weights == "1 bit" else [path]), *(one for one in made if one.exists())]


def _write_program(network: str, source: Path, path: Path) -> None:
    import bitfactor

    bitfactor.freeze(source, path)


def _write_steps(network: str, source: Path, path: Path) -> None:
    import web

    if (steps := web.steps_of(onnx.load(source))) is not None:
        path.write_text(json.dumps(steps))


def _write_lite(network: str, source: Path, path: Path) -> None:
    """Write what LiteRT runs, where litert-torch is installed; int8 has activations in int8, too."""
    if find_spec("litert_torch") is None:
        return
    plain = path.with_name(path.name.replace("-int8", ""))
    if not plain.exists():
        import torch

        model = _of_timm(TIMM[network])
        import litert_torch

        litert_torch.convert(model, (torch.randn(1, 3, SIDE, SIDE),)).export(str(plain))
    if path == plain:
        return
    from ai_edge_quantizer import qtyping, quantizer, recipe

    from bitfactor.engines.with_onnxruntime import noise

    int8 = quantizer.Quantizer(str(plain))
    int8.load_quantization_recipe(recipe.static_wi8_ai8())
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):  # LiteRT.js has no bytes
        int8.update_quantization_recipe(regex=".*", operation_name=end, algorithm_key="no_quantize")
    ranges = int8.calibrate({"serving_default": [{"args_0": x} for x in noise((1, 3, SIDE, SIDE))]})
    int8.quantize(ranges).export_model(str(path))


WEB_WRITERS = {".bfp": _write_program, ".json": _write_steps, ".tflite": _write_lite}


def lacking(name: str, asked: Sequence[str]) -> str:
    """Return what this machine lacks for a target, or nothing; what `native` measures counts as lacking."""
    from bitfactor.runtime import instruction_sets

    target, cores = TARGETS[name], os.sched_getaffinity(0)
    if target.isa is not None and target.isa not in instruction_sets():
        return f"the instruction set {target.isa}"
    if "native" in asked and target.isa == instruction_sets()[0]:
        return f"any better instruction set: `native` is {target.isa}"
    if target.threads > len(cores):
        return f"{target.threads} cores"
    return f"{'node' if which('node') is None else 'npm'}" if name == "web" and not which("npm") else ""


def in_process(name: str, options: argparse.Namespace) -> dict:
    """Measure a target in a process of its own: other engines read their switches when they are loaded."""
    target, cores = TARGETS[name], os.sched_getaffinity(0)
    chosen = {options.core} if target.threads == 1 else cores
    command = [sys.executable, __file__, "--child", name, "--runs", str(options.runs)]
    command += ["--folder", str(options.folder)]
    if options.networks:
        command += ["--networks", *options.networks]
    os.sched_setaffinity(0, chosen)
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | target.environment
    )
    os.sched_setaffinity(0, cores)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def child(name: str, options: argparse.Namespace) -> None:
    from bitfactor.common.machine import cpu_name
    from bitfactor.runtime import instruction_sets

    networks = chosen(options.networks)
    measure = measured_web if name == "web" else partial(measured, name)
    started = time.perf_counter()
    rows = measure(networks, options.folder, options.runs)
    target = TARGETS[name]
    about = {
        "machine": cpu_name(),
        "isa": "wasm" if name == "web" else target.isa or instruction_sets()[0],
        "threads": target.threads,
        "batch": target.batch,
        "runs": rounds(target, options.runs),
        "seconds": round(time.perf_counter() - started),
        "versions": {
            **{package: version(package) for package in VERSIONS},
            **(_of_node(options.folder) if name == "web" else {}),
        },
    }
    print(json.dumps({**about, "rows": rows}))


def _of_node(folder: Path) -> dict[str, str]:
    """Return the versions of node and of the packages that run in it."""
    import web

    packages = sorted({package for one in web.PACKAGES.values() for package in one})
    found = {name: folder / "node_modules" / name / "package.json" for name in packages}
    node = subprocess.run(["node", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    versions = {
        name: json.loads(path.read_text())["version"] for name, path in found.items() if path.exists()
    }
    return {"node": node.strip().lstrip("v"), **versions}


def chosen(names: Sequence[str]) -> list[tuple[str, str]]:
    return [one for one in published() if not names or one[0] in names]


def report(name: str, found: dict) -> None:
    """Print a target's rows, each with how many times the fastest of ours takes."""
    print(f"\n{name}: {found['machine']}, {found['isa']}, threads {found['threads']}, batch {found['batch']}")
    print(" ".join(f"{package} {number}" for package, number in found["versions"].items()))
    ours = [row["minimum_ms"] for row in found["rows"] if row["weights"] == "1 bit"]
    for row in sorted(found["rows"], key=lambda row: row["minimum_ms"]):
        times = f"{row['minimum_ms']:9.3f} {row['median_ms']:9.3f}"
        ratio = f"{row['minimum_ms'] / min(ours):6.2f}" if ours else ""
        print(f"{row['network']:24} {row['weights']:6} {row['engine']:34} {times} {ratio} {row['bytes']:11,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--networks", nargs="+", default=[], help="some of those that are published")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--folder", type=Path, default=Path("build/front"), help="keeps the networks")
    parser.add_argument("--out", type=Path, default=RESULTS, help="takes a target's results when it is done")
    parser.add_argument("--prepare", action="store_true", help="write the networks' files alone")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.child:
        child(options.child, options)
        return
    for network, weights in chosen(options.networks):
        file_of(network, weights, options.folder)
        if "web" in options.targets:
            web_files(network, weights, options.folder)
    if options.prepare:
        return
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.targets:
        if lack := lacking(name, options.targets):
            print(f"{name}: left out, this machine lacks {lack}")
            continue
        if name not in results:
            results[name] = in_process(name, options)
            options.out.write_text(json.dumps(results, indent=1) + "\n")
        report(name, results[name])


if __name__ == "__main__":
    main()
