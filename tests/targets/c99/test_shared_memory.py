"""Values in the memory of others: read before they are overwritten, each by its own shape."""

import ctypes
import subprocess

import numpy as np
import pytest
from tests.integers import run as run_in_integers
from tests.targets.c99.conftest import STRICT

from bitfactor.common.errors import InputError
from bitfactor.format import Graph, ModelFile, Node, Value
from bitfactor.format.graph import run
from bitfactor.format.integer import integer_graph
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.runner import magnitudes_on, runner
from bitfactor.targets.c99 import export_c

WINDOW = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def floats(*values):
    return np.array(values, np.float32)


def node(name, op, *inputs, **given):
    tensors = {key: value for key, value in given.items() if isinstance(value, np.ndarray)}
    attributes = {key: value for key, value in given.items() if key not in tensors}
    return Node(name, op, inputs, attributes, tensors)


def graph_of(shape, *nodes, outputs=()):
    return Graph(Value("x", shape, "float32"), nodes, outputs or (nodes[-1].name,))


def conv(name, of, kernel=3, weight=1.0):
    window = WINDOW if kernel == 3 else WINDOW | {"padding": (0, 0, 0, 0)}
    kernel = np.full((1, kernel, kernel, 1), weight, np.float32)
    return node(name, "conv2d", of, **window, weight=kernel, bias=floats(0))


SEEN_TWICE = {
    "reshaped and back": graph_of(
        (1, 3, 3),
        node("a", "relu", "x"),
        node("t", "reshape", "a", shape=(1, 9)),
        node("u", "reshape", "t", shape=(1, 3, 3)),
        conv("c", "u"),
        node("y", "add", "c", "a"),
    ),
    "flattened twice": graph_of(
        (4, 1, 1),
        node("a", "relu", "x"),
        node("t", "flatten", "a"),
        node("u", "flatten", "a"),
        node("c", "linear", "t", weight=np.eye(4, dtype=np.float32)[::-1].copy(), bias=floats(1, 2, 3, 4)),
        node("y", "add", "c", "u"),
    ),
}


@pytest.mark.parametrize("name", SEEN_TWICE)
def test_a_sum_with_what_its_layer_reads_in_another_shape(name, compiled):
    graph = SEEN_TWICE[name]
    x = np.random.default_rng(0).standard_normal((2, *graph.input.shape), np.float32)
    (expected,) = run(graph, x)
    for isa in instruction_sets():
        np.testing.assert_array_equal(runner(graph, isa)(x)[0], expected)
    golden = tuple(np.zeros((1, *graph.values[name].shape), np.float32) for name in graph.outputs)
    np.testing.assert_allclose(compiled(ModelFile(graph, golden))(x), expected, rtol=1e-5)


def affine(name, of):
    return node(name, "affine", of, scale=floats(0.7), shift=floats(0))


IN_INTEGERS = {
    "read by a later stage": graph_of(
        (1, 1, 2),
        conv("s", "x", kernel=1, weight=0.5),
        node("r", "relu", "s"),
        affine("a", "s"),
        node("y", "add", "s", "a"),
        conv("z", "a", kernel=1, weight=0.5),
        node("w", "concat", "z", "r"),
        outputs=("w", "y"),
    ),
    "the input, read twice": graph_of(
        (1, 1, 2), affine("a", "x"), node("y", "add", "x", "a"), outputs=("a", "y")
    ),
    "a vector seen as a map": graph_of(
        (6,), node("v", "reshape", "x", shape=(1, 2, 3)), node("y", "prelu", "v", slope=floats(1))
    ),
    "a map handed out as a vector": graph_of(
        (3, 2),
        node("v", "relu", "x"),
        node("y", "rearrange", "v", split=(2, 3), parts=(1, 1), repeats=(), groups=((0, 1),)),
    ),
    "a value that nothing reads": graph_of(
        (2,),
        node("t", "threshold", "x", threshold=floats(0, 0), direction=np.ones(2, np.int8)),
        node("y", "linear", "x", weight=np.array([[0.5, 0.25]], np.float32), bias=floats(0)),
    ),
}


@pytest.mark.parametrize("name", IN_INTEGERS)
def test_integers_in_shared_memory(name, tmp_path):
    graph = IN_INTEGERS[name]
    x = np.random.default_rng(0).uniform(-1, 1, (3, *graph.input.shape)).astype(np.float32)
    golden = tuple(np.zeros((1, *graph.values[name].shape), np.float32) for name in graph.outputs)
    model = ModelFile(graph, golden, ranges=dict(magnitudes_on(graph, x)))
    integers = integer_graph(graph, None, model.ranges)
    given = np.rint(x / integers.values["x"].scale).astype(np.int64)
    expected = run_in_integers(integers, given)
    export_c(model, tmp_path / "net.c", precision="integer")
    command = ["gcc", *STRICT, "-O1", "-fPIC", "-shared", "net.c", "-o", "net.so"]
    subprocess.run(command, check=True, cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    for i, one in enumerate(given):
        pixels = np.ascontiguousarray(one.reshape(len(one), -1).T, np.int16)
        found = [np.zeros(y[i].shape, np.int32) for y in expected]
        library.net_run(*(ctypes.c_void_p(array.ctypes.data) for array in (pixels, *found)))
        for y, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(y, right[i])


def test_an_input_that_is_an_output_has_no_integers():
    graph = graph_of((2,), node("y", "relu", "x"), outputs=("y", "x"))
    with pytest.raises(InputError, match="output 'x': expected a value that is computed"):
        integer_graph(graph, None, {"x": 1.0, "y": 1.0})
