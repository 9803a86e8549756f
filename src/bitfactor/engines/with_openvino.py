"""The full-precision baseline in OpenVINO: float32, bfloat16, 8 bits; the network itself in binary kernels.

Nothing converts a network to its operation BinaryConvolution. Here it takes the place of each convolution of
the baseline that stands for a binary one, with a FakeQuantize to two levels, OpenVINO's sign, in front.
It has no grouped form, and no padding that contributes 0: it pads with -1, which is the same work.

One sample is run for its latency; several are requests of one sample each, as many at once as OpenVINO's hint
for throughput says.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np
import onnx
import openvino as ov
import openvino.opset1 as ops
from numpy.typing import NDArray

from bitfactor.engines import Network, Run
from bitfactor.engines.with_onnxruntime import noise, onnx_baseline, quantised
from bitfactor.format import Graph, Node, unpack_signs


def engines(graph: Graph, x: NDArray[np.float32], threads: int) -> Mapping[str, Run]:
    """Return the baseline in each dtype, and the binary network where OpenVINO can express it."""
    proto = onnx_baseline(graph)
    models = {
        "float32": (_read(proto), "f32"),
        "bfloat16": (_read(proto), "bf16"),
        "int8": (_read(quantised(proto, noise(x[:1].shape))), "f32"),
    }
    version = ov.__version__.split("-")[0]
    runs = {
        f"OpenVINO {version} {kind}": _run(model, precision, x, threads)
        for kind, (model, precision) in models.items()
    }
    binary = _binary_nodes(graph)
    if binary and all(node.attributes["groups"] == 1 for node in binary):
        runs[f"OpenVINO {version} BinaryConvolution"] = binary_engine(graph, x, threads)
    return runs


def binary_engine(graph: Graph, x: NDArray[np.float32], threads: int) -> Run:
    """Return the network in OpenVINO's binary kernels; its binary convolutions must have one group."""
    model = _with_binary_kernels(_read(onnx_baseline(graph)), graph)
    return _run(model, "f32", x, threads)


def _binary_nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "binary_conv2d"]


@cache
def _core() -> ov.Core:
    """Return the only core. It lives on, as its end frees the stack that the thread handles signals on."""
    return ov.Core()


def _read(proto: onnx.ModelProto) -> ov.Model:
    return _core().read_model(proto.SerializeToString(), b"")


def network(proto: onnx.ModelProto, threads: int, precision: str = "f32") -> Network:
    """Return a call that runs a network on its one input; real-valued layers are in f32 or bf16."""
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    request = _core().compile_model(_read(proto), "CPU", options).create_infer_request()
    return lambda x: np.array(request.infer({0: x})[0])


def _run(model: ov.Model, precision: str, x: NDArray[np.float32], threads: int) -> Run:
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY" if len(x) == 1 else "THROUGHPUT",
    }
    compiled = _core().compile_model(model, "CPU", options)
    if len(x) == 1:
        request = compiled.create_infer_request()
        return lambda: request.infer({0: x})
    queue = ov.AsyncInferQueue(compiled)

    def several() -> None:
        for i in range(len(x)):
            queue.start_async({0: x[i : i + 1]})
        queue.wait_all()

    return several


def _with_binary_kernels(model: ov.Model, graph: Graph) -> ov.Model:
    operations = {operation.get_friendly_name(): operation for operation in model.get_ordered_ops()}
    layers = {node.name: node for node in graph.nodes}
    signs: dict[str, ov.Output] = {}
    for node in _binary_nodes(graph):
        bits = node.inputs[0]
        if bits not in signs:
            signs[bits] = _sign(operations[bits].input_value(0), layers[bits])
        depth = graph.values[bits].shape[0]
        for target in operations[node.name].output(0).get_target_inputs():
            target.replace_source_output(_binary_convolution(signs[bits], node, depth).output(0))
    model.validate_nodes_and_infer_types()
    return model


def _sign(x: ov.Output, node: Node) -> ov.Output:
    """Return 0 and 1; a direction of -1 is left out, as weights of the other sign would do the same."""
    threshold = node.tensors["threshold"].reshape(1, -1, 1, 1)
    border, zero, one = (ops.constant(np.asarray(v, np.float32)) for v in (threshold, _number(0), _number(1)))
    return ops.fake_quantize(x, border, border, zero, one, 2).output(0)


def _number(value: float) -> NDArray[np.float32]:
    return np.full((1, 1, 1, 1), value, np.float32)


def _binary_convolution(bits: ov.Output, node: Node, depth: int) -> ov.Node:
    signs = unpack_signs(node.tensors["weight"], depth).transpose(0, 3, 1, 2)
    words = np.packbits(signs.ravel() > 0, bitorder="little")
    weight = ov.op.Constant(ov.Tensor(words, ov.Shape(signs.shape), ov.Type.u1))
    top, left, bottom, right = node.attributes["padding"]
    return ops.binary_convolution(
        bits,
        weight,
        list(node.attributes["stride"]),
        [top, left],
        [bottom, right],
        list(node.attributes["dilation"]),
        "xnor-popcount",
        0.0,
    )
