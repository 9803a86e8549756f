from dataclasses import replace

import numpy as np
import pytest

from bitfactor.errors import InputError
from bitfactor.format import Graph, Node, Value
from bitfactor.format.operations import OPERATIONS

X = Value("x", (4, 6, 6), "float32")
SLIDING = {"stride": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def conv(**changes):
    tensors = {"weight": np.zeros((8, 3, 3, 4), np.float32), "bias": np.zeros(8, np.float32)}
    return replace(Node("y", "conv2d", ("x",), SLIDING, tensors), **changes)


def small_conv():
    return conv().tensors | {"weight": np.zeros((8, 3, 3, 4), np.int8)}


def graph_of(*nodes, outputs=("y",)):
    return Graph(X, nodes, outputs)


def test_shapes_and_dtypes_are_derived(graph):
    assert {name: (value.shape, value.dtype) for name, value in graph.values.items()} == {
        "x": ((70, 8, 8), "float32"),
        "sign": ((70, 8, 8), "bit"),
        "conv": ((3, 8, 8), "int32"),
        "y": ((3, 8, 8), "float32"),
    }


def test_a_strided_window_is_floored():
    assert graph_of(conv()).values["y"].shape == (8, 3, 3)


@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_states_what_it_misses(op):
    with pytest.raises(InputError, match=r"node 'y' \(" + op):
        graph_of(Node("y", op, ()))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("y", "conv9d", ("x",))], "expected an operation of this version, found 'conv9d'"),
        ([conv(inputs=("z",))], "expected inputs computed before it, found 'z'"),
        ([conv(name="x")], "a second value named 'x'"),
        ([conv(attributes=SLIDING | {"stride": (0, 1)})], "stride as 2 integers of 1 or more"),
        ([conv(attributes=SLIDING | {"groups": 3})], "groups that divide 4 channels"),
        (
            [conv(tensors=conv().tensors | {"bias": np.zeros(7, np.float32)})],
            r"bias shaped \(8,\), found \(7,\)",
        ),
        ([conv(tensors=conv().tensors | {"bias": np.zeros(8)})], "bias of type float32, found float64"),
        ([conv(tensors={"weight": np.zeros((8, 3, 3, 4), np.float32)})], r"tensors \['bias', 'weight'\]"),
        (
            [conv(tensors=conv().tensors | {"weight": np.zeros((8, 9, 9, 4), np.float32)})],
            "a map of at least",
        ),
        ([Node("y", "scale", ("x",), {}, {"alpha": np.zeros(3, np.float32)})], "alpha shaped"),
        ([conv(), Node("z", "add", ("x", "y"))], "two inputs of one shape"),
        ([Node("y", "binary_linear", ("x",), {}, {"weight": np.zeros((2, 1), np.uint64)})], "of dtype bit"),
        ([conv(tensors=small_conv())], r"'bias', 'step', 'w"),
        (
            [conv(tensors=small_conv() | {"step": np.zeros(7, np.float32)})],
            r"step shaped \(8,\), found \(7,\)",
        ),
        ([conv(), Node("z", "multiply", ("x", "y"))], "or one value per channel"),
        ([conv(), Node("z", "concat", ("x", "y"))], "differ in their channels alone"),
        ([Node("y", "clip", ("x",), {"lower": 1.0, "upper": 0.0})], "lower and upper as numbers"),
        ([Node("y", "clip", ("x",), {"lower": 0.0, "upper": np.inf})], "lower and upper as numbers"),
        ([Node("y", "reshape", ("x",), {"shape": (4, 35)})], "a shape of 144 elements"),
        ([Node("y", "reshape", ("x",), {"shape": (-4, -36)})], "a shape of 144 elements"),
        ([Node("y", "reshape", ("x",), {"shape": (-1, -1)})], "a shape of 144 elements"),
        ([Node("y", "reshape", ("x",), {"shape": (5, -1)})], "a shape of 144 elements"),
        ([Node("y", "reshape", ("x",), {"shape": (4, 36.0)})], "a shape as integers"),
        ([Node("y", "permute", ("x",), {"order": (0, 1, 1)})], "each of the axes 0 to 2 once"),
        ([Node("y", "slice", ("x",), {"range": (1, 2, 2, 1)})], "inside"),
        ([Node("y", "slice", ("x",), {"range": (1, 0, 7, 1)})], "inside"),
    ],
)
def test_what_does_not_fit_is_named(nodes, message):
    with pytest.raises(InputError, match=message):
        graph_of(*nodes)


def test_an_unknown_output_lists_near_matches():
    with pytest.raises(InputError, match=r"found 'yy'; did you mean y\?"):
        graph_of(conv(), outputs=("yy",))


def test_used_tail_bits_are_refused(graph):
    sign, layer, scale = graph.nodes
    weight = layer.tensors["weight"].copy()
    weight[0, 0, 0, 1] |= np.uint64(1) << np.uint64(6)
    with pytest.raises(InputError, match="bits 6 to 63 of the last one 0"):
        Graph(graph.input, (sign, replace(layer, tensors={"weight": weight}), scale), ("y",))


def test_nan_thresholds_and_other_directions_are_refused(graph):
    sign = graph.nodes[0]
    for role, value, message in (("threshold", np.nan, "NaN"), ("direction", 0, "direction of -1 and")):
        tensors = {**sign.tensors, role: np.full_like(sign.tensors[role], value)}
        with pytest.raises(InputError, match=message):
            Graph(graph.input, (replace(sign, tensors=tensors),), ("sign",))
