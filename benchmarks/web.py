"""Speed in a browser's WebAssembly, in node, against onnxruntime-web, batch 1, one thread.

ResNet-18 at 224 pixels and the hourglass of the paper at 256, untrained, and the zoo's pose network. Ours
with relaxed vectors (which node 20 has behind a flag, and browsers have) and without; the other engine runs
the full-precision baseline of the same network in float32. All take turns.

    chrt -f 1 taskset -c 1 python benchmarks/web.py [--runs 20] [--json]

Needs the packages of bitfactor[train,bench], node 20 and npm, which fetches onnxruntime-web.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import onnx
from engines import NETWORKS, exported

import bitfactor
from bitfactor.bench.engines.onnx_baseline import onnx_baseline
from bitfactor.format import load
from bitfactor.web import PACKAGE
from bitfactor.zoo import file_of

ZOO = "lsp-hourglass"
ORT = Path(__file__).parents[1] / "build" / "onnxruntime-web"


def files_of(path: Path) -> tuple[str, str]:
    """Return our program and the baseline of an exported file."""
    program, baseline = path.with_suffix(".bfp"), path.with_suffix(".onnx")
    bitfactor.freeze(path, program)
    onnx.save(onnx_baseline(load(path).graph), baseline)
    return str(program), str(baseline)


def measured(paths: list[Path], runs: int) -> list[list[dict]]:
    if not ORT.exists():
        subprocess.run(["npm", "install", "--silent", "--prefix", str(ORT), "onnxruntime-web"], check=True)
    command = ["node", "--no-warnings", "--experimental-wasm-relaxed-simd", str(Path(__file__).with_suffix(".mjs"))]
    command += [str(PACKAGE), str(ORT / "node_modules" / "onnxruntime-web"), str(runs)]
    command += [name for path in paths for name in files_of(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {title: exported(recipe, folder) for title, recipe in NETWORKS.items()}
        paths[ZOO] = folder / f"{ZOO}.safetensors"
        paths[ZOO].write_bytes(Path(file_of(ZOO)).read_bytes())
        found = dict(zip(paths, measured(list(paths.values()), options.runs), strict=True))
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
