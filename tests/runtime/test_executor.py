"""Threads within one sample, memory, and the times of layers."""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.cases import slow_beside

from bitfactor.common import machine
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node, Value, pack_signs, save
from bitfactor.format.graph import run, total
from bitfactor.format.model import golden_input
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.runner import NativeRunner, default_threads


def network(channels: int, height: int, width: int, blocks: int = 2) -> Graph:
    """Blocks of threshold, binary convolution, alpha and shortcut; a mean at the end."""
    rng = np.random.default_rng(0)
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
    nodes: list[Node] = []

    def add(op: str, *inputs: str, attributes: dict | None = None, **tensors: np.ndarray) -> str:
        nodes.append(Node(f"{op}{len(nodes)}", op, inputs, attributes or {}, tensors))
        return nodes[-1].name

    stream = "x"
    for _ in range(blocks):
        signs = rng.choice(np.array([-1, 1], np.int8), (channels, 3, 3, channels))
        border = rng.standard_normal(channels, np.float32)
        bits = add("threshold", stream, threshold=border, direction=np.ones(channels, np.int8))
        sums = add("binary_conv2d", bits, attributes=window, weight=pack_signs(signs))
        scaled = add("scale", sums, alpha=rng.standard_normal(channels, np.float32) / channels)
        stream = add("add", scaled, stream)
    mean = add("global_avg_pool", stream)
    return Graph(Value("x", (channels, height, width), "float32"), tuple(nodes), (stream, mean))


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    graph = network(64, 14, 11)
    path = tmp_path_factory.mktemp("models") / "net.safetensors"
    save(path, ModelFile(graph, run(graph, golden_input(graph.input.shape))))
    return path


SHAPES = [(64, 24, 24), (130, 13, 9), (256, 7, 7)]
EACH = [(isa, n, *shape) for isa in instruction_sets() for n, shape in zip((2, 3, 4), SHAPES, strict=True)]
OF_BEST = [(instruction_sets()[0], n, *shape) for n, shape in product((2, 3, 4), SHAPES)]


@pytest.mark.parametrize(
    ("isa", "threads", "channels", "height", "width"),
    slow_beside(
        [*EACH, *OF_BEST],
        [(isa, n, *shape) for isa, n, shape in product(instruction_sets(), (2, 3, 4), SHAPES)],
    ),
)
def test_threads_change_no_bit(isa, threads, channels, height, width):
    graph = network(channels, height, width)
    one, several = (NativeRunner(graph, isa, n) for n in (1, threads))
    for samples in (1, 2, 5):
        x = np.random.default_rng(samples).standard_normal((samples, *graph.input.shape), np.float32)
        expected = one(x)
        for _ in range(10):  # another order of events each time
            for found, alone in zip(several(x), expected, strict=True):
                np.testing.assert_array_equal(found, alone)


def image_network(outputs: int = 330) -> Graph:
    """A stem on an image, a mean and a linear layer: what threads share by halves and by outputs."""
    rng = np.random.default_rng(0)
    window = {"stride": (8, 8), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    stem = {
        "weight": rng.standard_normal((200, 3, 3, 3), np.float32),
        "bias": rng.standard_normal(200, np.float32),
    }
    last = {
        "weight": rng.standard_normal((outputs, 200), np.float32),
        "bias": rng.standard_normal(outputs, np.float32),
    }
    nodes = (
        Node("stem", "conv2d", ("x",), window, stem),
        Node("mean", "global_avg_pool", ("stem",), {}, {}),
        Node("vector", "flatten", ("mean",), {}, {}),
        Node("scores", "linear", ("vector",), {}, last),
    )
    return Graph(Value("x", (3, 87, 101), "float32"), nodes, ("scores",))


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_threads_share_an_image_and_the_outputs_of_one_pixel(isa, precision):
    graph = image_network()
    x = np.random.default_rng(1).standard_normal((3, *graph.input.shape), np.float32)
    (one,) = NativeRunner(graph, isa, 1, precision)(x)
    for threads in (2, 3):
        np.testing.assert_array_equal(NativeRunner(graph, isa, threads, precision)(x)[0], one)
    if precision == "highest":
        np.testing.assert_array_equal(one, run(graph, x)[0])


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_finds_what_is_no_number_in_any_part_of_the_input(isa, threads, number):
    graph = image_network(outputs=3)
    run = NativeRunner(graph, isa, threads)
    x = np.zeros((3, *graph.input.shape), np.float32)
    for index in [(0, 0, 0, 0), (1, 2, 43, 99), (2, 2, 86, 100)]:
        x[index] = number
        found = rf"found {number} at \[{', '.join(map(str, index))}\]"
        with pytest.raises(InputError, match=found):
            run(x)
        x[index] = np.finfo(np.float32).max
        run(x)
        x[index] = 0


def test_profile(path):
    session = Session(path, threads=2)
    profile = session.profile(runs=5)
    names = [name for layer in profile.layers[1:-1] for name in layer.names]
    assert sorted(names) == sorted(node.name for node in session.model.graph.nodes)
    assert sum(layer.fraction for layer in profile.layers) == pytest.approx(1)
    assert sum(layer.binary_macs for layer in profile.layers) == total(session.model.graph).binary_macs
    assert (profile.runs, profile.threads) == (5, 2)
    for layer in profile.layers:
        assert 0 <= layer.minimum <= layer.median
        assert layer.kernel.startswith(f"{session.isa}/")
    convs = [layer for layer in profile.layers if "binary_conv2d" in layer.operations]
    assert [layer.operations for layer in convs] == [
        ("binary_conv2d", "scale", "add", "threshold", "store"),
        ("binary_conv2d", "scale", "add", "store"),
    ]
    assert all(layer.rate > 0 for layer in convs)
    assert "GMAC/s" in str(profile)
    assert "100.0 %" in str(profile)


def test_profile_takes_one_sample_of_a_native_session(path):
    with pytest.raises(InputError, match="x: expected one sample, found 2"):
        Session(path).profile(np.zeros((2, 64, 14, 11), np.float32))
    with pytest.raises(InputError, match="runs: expected 1 or more"):
        Session(path).profile(runs=0)
    with pytest.raises(InputError, match="isa: expected an instruction set, found reference"):
        Session(path, isa="reference").profile()


def test_threads_are_the_physical_cores_by_default(tmp_path, path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 8}, raising=False)
    monkeypatch.setattr(machine, "_siblings", lambda cpu: f"{cpu % 4}")
    assert machine.physical_cores() == 4
    large = network(256, 28, 28)
    assert default_threads(large) == 4
    assert default_threads(network(16, 8, 8)) == 1
