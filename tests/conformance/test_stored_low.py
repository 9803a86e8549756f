"""Real-valued weights of 8 or 16 bits stay so on every target, and give the same answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.native.test_c_api import LIBRARY, aligned
from tests.native.test_c_api import run as run_c
from tests.targets.c99.conftest import compiled as compiled
from tests.targets.page.conftest import node as node

import bitfactor
from bitfactor.format import Graph, ModelFile, Node, Value, load, save
from bitfactor.format.graph import run
from bitfactor.format.low_precision import is_real_layer, lossless, quantise
from bitfactor.format.model import golden_input
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of

WINDOW = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
BYTES = {"float32": 4, "float16": 2, "int8": 1}


def grouped():
    """Groups, a depthwise layer, and a linear one; a row is all zeros."""
    rng = np.random.default_rng(0)

    def weights(*shape):
        weight = rng.standard_normal(shape).astype(np.float32)
        weight[1] = 0
        return {"weight": weight, "bias": rng.standard_normal(shape[0]).astype(np.float32)}

    nodes = (
        Node("a", "conv2d", ("x",), {**WINDOW, "groups": 2}, weights(12, 3, 3, 4)),
        Node("b", "conv2d", ("a",), {**WINDOW, "groups": 12}, weights(12, 3, 3, 1)),
        Node("pool", "global_avg_pool", ("b",)),
        Node("c", "linear", ("pool",), {}, weights(5, 12)),
    )
    graph = Graph(Value("x", (8, 6, 5), "float32"), nodes, ("c",))
    return ModelFile(graph, run(graph, golden_input((8, 6, 5))))


NETWORKS = {"grouped": grouped, "cifar10-resnet18": lambda: load(file_of("cifar10-resnet18"))}
every_network = pytest.mark.parametrize("name", NETWORKS)
every_type = pytest.mark.parametrize("real", ["float16", "int8"])


def stored(name, real):
    """The network with its real-valued weights in `real`, and the bytes of these weights in float32."""
    model = NETWORKS[name]()
    wide = replace(model.graph, nodes=tuple(map(widened, model.graph.nodes)))
    graph = quantise(wide, real)
    sizes = [node.tensors["weight"].size for node in graph.nodes if is_real_layer(node)]
    return replace(model, graph=graph, golden_outputs=run(graph, model.golden_input)), 4 * sum(sizes)


def widened(node):
    if not is_real_layer(node):
        return node
    tensors = {role: array for role, array in node.tensors.items() if role != "step"}
    noise = np.random.default_rng(0).standard_normal(tensors["weight"].shape).astype(np.float32)
    return replace(node, tensors={**tensors, "weight": noise})


@every_network
@every_type
def test_a_frozen_program(name, real, tmp_path, node):
    sizes = {}
    for kind in ("float32", real):
        model, wide = stored(name, kind)
        save(tmp_path / f"{kind}.safetensors", model)
        sizes[kind] = bitfactor.freeze(tmp_path / f"{kind}.safetensors", tmp_path / f"{kind}.bfp").bytes
    saved = (sizes["float32"] - sizes[real]) / wide
    assert saved > 0.85 * (1 - BYTES[real] / 4) - 300 / wide
    session = Session(tmp_path / f"{real}.safetensors", threads=1)
    network = LIBRARY.bf_open(str(tmp_path / f"{real}.bfp").encode(), None)
    assert LIBRARY.bf_verify(network, None, None) == 0  # the same bits
    x = golden_input(session.input_shape) * np.float32(-0.5)
    np.testing.assert_array_equal(run_c(network, x)[1][0], session(x))
    LIBRARY.bf_free(network)
    found = node("run", file=str(tmp_path / f"{real}.bfp"), x=x)["outputs"][0][0]
    np.testing.assert_allclose(found, session(x).ravel(), rtol=1e-4, atol=1e-4)


@every_network
@every_type
def test_c99(name, real, compiled, tmp_path):
    from bitfactor.targets.c99 import export_c

    (float_model, wide), (model, _) = stored(name, "float32"), stored(name, real)
    large, small = (
        export_c(one, tmp_path / f"{kind}.c") for one, kind in ((float_model, "large"), (model, "small"))
    )
    saved = (large.constant_bytes - small.constant_bytes) / wide
    assert saved > 0.85 * (1 - BYTES[real] / 4) - 300 / wide
    assert large.arena_bytes == small.arena_bytes
    kind = {"int8": "int8_t", "float16": "uint16_t"}[real]
    assert f"static const {kind}" in Path(small.source).read_text()
    x = golden_input(model.graph.input.shape)
    np.testing.assert_allclose(compiled(model)(x), run(model.graph, x)[0], rtol=1e-4, atol=1e-4)


@every_type
def test_onnx(real, tmp_path):
    from bitfactor.targets.onnx import to_onnx

    model, _ = stored("grouped", real)
    wanted = {"int8": onnx.TensorProto.INT8, "float16": onnx.TensorProto.FLOAT16}[real]
    large = [one for one in to_onnx(model).graph.initializer if one.name.endswith(":weight")]
    assert {one.data_type for one in large} == {wanted}


def test_weights_are_stored_low_only_without_loss():
    rng = np.random.default_rng(0)
    assert lossless(rng.standard_normal((4, 30)).astype(np.float32)) is None
    assert lossless(np.full((4, 30), 1e6, np.float32)).steps is not None
    assert lossless(np.full((4, 1), 1e6, np.float32)) is None  # a step each would take more
    steps = rng.random((64, 1)).astype(np.float32) / 100
    levels = rng.integers(-127, 128, (64, 50))
    levels[:, 0] = 127
    low = lossless(steps * levels.astype(np.float32))
    np.testing.assert_array_equal(low.values * low.steps[:, None], steps * levels.astype(np.float32))


def test_a_damaged_program_with_low_weights_is_refused(tmp_path):
    from tests.native.test_c_api import Error, with_checksum

    model, _ = stored("grouped", "int8")
    save(tmp_path / "net.safetensors", model)
    bitfactor.freeze(tmp_path / "net.safetensors", tmp_path / "net.bfp")
    content = (tmp_path / "net.bfp").read_bytes()
    assert content[8] == 2
    refused = 0
    for place in range(64, len(content), 7):
        altered = with_checksum(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        memory, error = aligned(altered), Error()
        network = LIBRARY.bf_load(memory.ctypes.data, len(altered), error)
        refused += network is None
        LIBRARY.bf_free(network)
    assert refused > 20
