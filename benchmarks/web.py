"""Speed in a browser's WebAssembly, in node, against onnxruntime-web, batch 1, both with --threads (1).

ResNet-18 at 224 pixels and the hourglass of the paper at 256, untrained, and the zoo's pose network. Ours
with relaxed vectors (which node 20 has behind a flag, and browsers have) and without; the other engine runs
the full-precision baseline of the same network in float32. All take turns. A first call, which need not be
pinned, exports the networks.

    chrt -r 1 taskset -c 1 python benchmarks/web.py [--runs 20] [--threads 2] [--json]

Needs the packages of bitfactor[train,bench], node 20 and npm, which fetches onnxruntime-web.
"""

import argparse
import json
import subprocess
from pathlib import Path

import onnx
from engines import NETWORKS, exported

import bitfactor
from bitfactor.engines.with_onnxruntime import onnx_baseline
from bitfactor.format import load
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.page import PACKAGE

ZOO = "lsp-hourglass"


def files_of(network: str, folder: Path) -> tuple[str, str]:
    """Return our program and the baseline of a recipe's network, or of the zoo's; written if not there."""
    program, baseline = (folder / f"{network}{suffix}" for suffix in (".bfp", ".onnx"))
    if not baseline.exists():
        path = file_of(network) if network == ZOO else exported(network, folder)
        bitfactor.freeze(path, program)
        onnx.save(onnx_baseline(load(path).graph), baseline)
    return str(program), str(baseline)


def measured(networks: list[str], folder: Path, runs: int, threads: int) -> list[list[dict]]:
    ort = folder / "node_modules" / "onnxruntime-web"
    if not ort.exists():
        subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), "onnxruntime-web"], check=True)
    files = [name for network in networks for name in files_of(network, folder)]
    script = Path(__file__).with_suffix(".mjs")
    command = [
        "node",
        "--no-warnings",
        "--experimental-wasm-relaxed-simd",
        script,
        PACKAGE,
        ort,
        runs,
        threads,
        *files,
    ]
    done = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/web-benchmark"), help="keeps the networks")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = [*NETWORKS.values(), ZOO]
    rows = measured(names, options.folder, options.runs, options.threads)
    found = dict(zip([*NETWORKS, ZOO], rows, strict=True))
    if options.json:
        print(json.dumps(found))
        return
    for title, engines in found.items():
        print(f"\n{title:32} minimum ms  median ms  times ours")
        for engine in engines:
            times = f"{engine['minimum_ms']:10.2f} {engine['median_ms']:10.2f}"
            print(f"{engine['name']:32} {times} {engine['minimum_ms'] / engines[0]['minimum_ms']:11.1f}")


if __name__ == "__main__":
    main()
