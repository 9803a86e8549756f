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
PACKAGES = {
    ".bfp": [],
    ".onnx": ["onnxruntime-web"],
    ".json": ["@tensorflow/tfjs-core", "@tensorflow/tfjs-backend-wasm"],
    ".tflite": ["@litertjs/core"],
}


def files_of(network: str, folder: Path) -> tuple[str, str]:
    """Return our program and the baseline of a recipe's network, or of the zoo's; written if not there."""
    program, baseline = (folder / f"{network}{suffix}" for suffix in (".bfp", ".onnx"))
    if not baseline.exists():
        path = file_of(network) if network == ZOO else exported(network, folder)
        bitfactor.freeze(path, program)
        onnx.save(onnx_baseline(load(path).graph), baseline)
    return str(program), str(baseline)


def measured(groups: list[list[str]], folder: Path, runs: int, threads: int) -> list[list[dict]]:
    """Time the files of each group in turns, those that end in .json in TensorFlow.js; see `web.mjs`."""
    modules, endings = folder / "node_modules", {Path(name).suffix for group in groups for name in group}
    needed = [package for ending in sorted(endings) for package in PACKAGES[ending]]
    if not all((modules / package).exists() for package in needed):
        subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), *needed], check=True)
    node = ["node", "--no-warnings", "--experimental-wasm-relaxed-simd", Path(__file__).with_suffix(".mjs")]
    command = [*node, PACKAGE, modules, runs, threads, *map(",".join, groups)]
    done = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def steps_of(proto: onnx.ModelProto) -> dict | None:
    """Return the steps of a convolutional network for TensorFlow.js, or None: it groups no convolutions."""
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    readers = {name: sum(name in node.input for node in proto.graph.node) for name in _outputs(proto)}
    steps: list[dict] = []
    for node in proto.graph.node:
        last = steps[-1] if steps else {}
        if node.op_type in _FUSED and last.get("activation") == "linear" and readers[node.input[0]] == 1:
            last |= {"activation": _FUSED[node.op_type], "output": node.output[0]}
            continue
        if node.op_type == "Conv":
            if (step := _convolution(node, weights[node.input[1]].shape)) is None:
                return None
        elif node.op_type == "Gemm":
            step = {"op": "linear", "shape": weights[node.input[1]].shape[::-1]}
        else:
            step = {"op": _OPERATIONS[node.op_type]}
        inputs = [name for name in node.input if name not in weights]
        steps.append({**step, "inputs": inputs, "output": node.output[0]})
    channels, *sides = (one.dim_value for one in proto.graph.input[0].type.tensor_type.shape.dim[1:])
    taken = {"name": proto.graph.input[0].name, "shape": [1, *sides, channels]}
    return {"input": taken, "output": proto.graph.output[0].name, "steps": steps}


_FUSED = {"Clip": "relu6", "Relu": "relu"}
_OPERATIONS = {
    "Add": "add",
    "Mul": "multiply",
    "Relu": "relu",
    "Clip": "relu6",
    "ReduceMean": "mean",
    "MaxPool": "max_pool",
    "Reshape": "same",
    "HardSwish": "hard_swish",
    "HardSigmoid": "hard_sigmoid",
}


def _outputs(proto: onnx.ModelProto) -> list[str]:
    return [name for node in proto.graph.node for name in node.output]


def _convolution(node: onnx.NodeProto, shape: tuple[int, ...]) -> dict | None:
    """Return a convolution with its weight's shape as TensorFlow has it, (kh, kw, C, O) or (kh, kw, C, 1)."""
    found = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    groups, (outputs, inputs, *kernel) = found.get("group", 1), shape
    if groups not in (1, outputs):
        return None
    top, left, bottom, right = found.get("pads", [0] * 4)
    return {
        "op": "conv",
        "shape": [*kernel, inputs, outputs] if groups == 1 else [*kernel, outputs, 1],
        "strides": list(found.get("strides", [1, 1])),
        "pads": [[0, 0], [top, bottom], [left, right], [0, 0]],
        "depthwise": groups > 1,
        "activation": "linear",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/web-benchmark"), help="keeps the networks")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = [*NETWORKS.values(), ZOO]
    files = [list(files_of(name, options.folder)) for name in names]
    rows = measured(files, options.folder, options.runs, options.threads)
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
