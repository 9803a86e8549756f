"""The networks that a user would run instead, in other engines. One is imported when asked for.

It is the full-precision baseline of a binary network: a sign becomes a ReLU, a binary layer one in float32.
Alpha is left out, as a full-precision network has none; batch norms are folded away as far as the file has
them folded. So it is never slower than the network that a user would have trained in full precision.
"""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError, imported
from bitfactor.format import Graph, Node, unpack_signs
from bitfactor.format.operations.quantised import unquantised

Engine = Literal["torch", "onnxruntime", "openvino"]
Run = Callable[[], object]
Network = Callable[[NDArray[np.float32]], NDArray[np.float32]]

ENGINES: dict[Engine, str] = {
    "torch": "with_torch",
    "onnxruntime": "with_onnxruntime",
    "openvino": "with_openvino",
}


def engines_of(engine: Engine, graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return name -> a call that runs the full-precision baseline of `graph`, or the like, for each dtype.

    x (N, *input shape) is one sample, or several that are run in whatever way is fastest.
    """
    module = imported(f"bitfactor.engines.{ENGINES[engine]}", f"--against {engine}", "bench")
    engines: Mapping[str, Run] = module.engines(graph, x, threads)
    return engines


def networks_of(file: Path, threads: int) -> tuple[tuple[int, ...], Mapping[str, Network]]:
    """Return the shape (C, H, W) that an ONNX file takes, and each engine's call of it for one sample."""
    onnxruntime, openvino = (
        imported(f"bitfactor.engines.{ENGINES[name]}", file, "bench") for name in ("onnxruntime", "openvino")
    )
    proto, shape = onnxruntime.of_one_sample(file)
    try:
        made = {
            "OpenVINO": openvino.network(proto, threads),
            "ONNX Runtime": onnxruntime.network(proto, threads),
        }
    except Exception as error:  # each engine has its own, and no base of them but this
        raise InputError(
            file,
            expected="a network that OpenVINO and ONNX Runtime run",
            found=str(error).strip().splitlines()[-1],
            fix="export it anew, with float32 in and out",
        ) from error
    return shape, made


_PROCESS = """
import sys
import numpy as np
file, threads, precision, shape = sys.argv[1], int(sys.argv[2]), sys.argv[3], eval(sys.argv[4])
x = np.zeros(shape, np.float32)
{}
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
_LOADED = {
    "bitfactor": "import bitfactor; bitfactor.Session(file, threads=threads, precision=precision)(x)",
    "OpenVINO": "import openvino as o; o.Core().compile_model(file, 'CPU').infer_new_request({0: x})",
    "ONNX Runtime": "import onnxruntime as o\n"
    "session = o.InferenceSession(file)\n"
    "session.run(None, {session.get_inputs()[0].name: x})",
}


def peak_memory(
    engine: str, file: Path, shape: tuple[int, ...], threads: int, precision: str = ""
) -> int | None:
    """Return the most bytes of a process that loads a file and runs one sample.

    None where no /proc is, or where the process fails.
    """
    if not Path("/proc/self/status").exists():
        return None
    words = [str(file), str(threads), precision, str((1, *shape))]
    command = [sys.executable, "-c", _PROCESS.format(_LOADED[engine]), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return None if done.returncode else 1024 * int(done.stdout)


_LAYERS = {
    "binary_conv2d": "conv2d",
    "binary_linear": "linear",
    "quantised_conv2d": "conv2d",
    "quantised_linear": "linear",
}


def full_precision(graph: Graph) -> Graph:
    """Return the baseline; its nodes keep their names, and its weights the signs, divided by sqrt(fan-in)."""
    renamed: dict[str, str] = {}
    nodes: list[Node] = []
    operations = {node.name: node.op for node in graph.nodes}
    for node in graph.nodes:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        if node.op == "scale" and operations.get(node.inputs[0]) in _LAYERS:
            renamed[node.name] = inputs[0]
        elif node.op == "threshold":
            nodes.append(Node(node.name, "relu", inputs))
        elif node.op in _LAYERS:
            nodes.append(_real(node, inputs, graph))
        else:
            nodes.append(replace(node, inputs=inputs))
    outputs = tuple(renamed.get(name, name) for name in graph.outputs)
    return Graph(graph.input, tuple(nodes), outputs, graph.others)


def _real(node: Node, inputs: tuple[str, ...], graph: Graph) -> Node:
    if "inverse" in node.tensors:
        tensors = unquantised(node)
    else:
        depth = graph.values[node.inputs[0]].shape[0] // int(node.attributes.get("groups", 1))
        signs = unpack_signs(node.tensors["weight"], depth).astype(np.float32)
        tensors = {
            "weight": signs / np.float32(math.sqrt(math.prod(signs.shape[1:]))),
            "bias": np.zeros(len(signs), np.float32),
        }
    attributes = {name: value for name, value in node.attributes.items() if name != "pad_value"}
    return Node(node.name, _LAYERS[node.op], inputs, attributes, tensors)
