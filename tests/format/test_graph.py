"""Shapes follow from the graph, and what does not fit is named."""

from dataclasses import replace

import numpy as np
import pytest

from bitfactor.common.errors import InputError
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


@pytest.mark.parametrize(("name", "axes"), [("", 1), ("a\0b", 1), ("\ud800", 1), ("x", 7)])
def test_a_value_that_no_target_could_hold(name, axes):
    with pytest.raises(InputError, match=r"expected a name, and 6 axes at most|text without a zero"):
        Value(name, (1,) * axes, "float32")


def test_a_strided_window_is_floored():
    assert graph_of(conv()).values["y"].shape == (8, 3, 3)


REARRANGED = {"split": (6, 6, 4), "parts": (1, 1, 1), "repeats": (), "groups": ((0,), (1,), (2,))}
RESIZED = {"size": (0, 0), "scale": (1.0, 1.0), "align_corners": 0}


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
        ([conv(), Node("z", "add", ("x", "y"))], "of the first one's shape"),
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
        ([Node("y", "rearrange", ("x",), REARRANGED | {"parts": (1, 1)})], "parts of each of 3 axes"),
        ([Node("y", "rearrange", ("x",), REARRANGED | {"split": (4, 6, 4)})], "a shape of 6"),
        (
            [Node("y", "rearrange", ("x",), REARRANGED | {"groups": ((0,), (1,))})],
            "groups of each of the axes",
        ),
        ([Node("y", "rearrange", ("x",), REARRANGED | {"repeats": (0,)})], "groups of each"),
        ([Node("y", "take", ("x",), {"axis": 0, "indices": (4,)})], "indices of 0 to 3"),
        ([Node("y", "take", ("x",), {"axis": 0, "indices": (2.0,)})], "indices of 0 to 3"),
        ([conv(attributes=SLIDING | {"stride": (1 << 31, 1)})], "stride as 2 integers"),
        ([Node("y", "take", ("x",), {"axis": 3, "indices": (0,)})], "an axis of"),
        ([Node("y", "pad", ("x",), {"axis": 0, "before": -1, "after": 0, "value": 0.0})], "an axis of"),
        ([Node("y", "pad", ("x",), {"axis": 0, "before": 1, "after": 0, "value": np.nan})], "a finite value"),
        ([Node("y", "join", ("x", "x"), {"axis": 3})], "an axis of"),
        ([Node("y", "reduce_pixels", ("x",), {"how": "product"})], "how as one of mean"),
        ([Node("y", "layer_norm", ("x",), {"eps": -1.0})], "eps as a number"),
        ([Node("y", "matmul", ("x", "x"), {"groups": 3, "transposed": 0})], "channels of 3 groups"),
        ([Node("y", "matmul", ("x", "x"), {"groups": 1, "transposed": 2})], "transposed 0 or 1"),
        ([Node("y", "resize_bilinear", ("x",), RESIZED | {"scale": (0.1, 1.0)})], "a size of 1 or more"),
        ([Node("y", "resize_bilinear", ("x",), RESIZED | {"align_corners": 2})], "align_corners 0 or 1"),
        ([Node("y", "embedding", ("x",), {}, {"table": np.zeros(4, np.float32)})], "a table"),
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


def test_a_graph_without_outputs_is_refused(graph):
    with pytest.raises(InputError, match="graph outputs: expected one name or more, found none"):
        Graph(graph.input, graph.nodes, ())


@pytest.mark.parametrize("shape", [(), (0,), (4, -1)])
def test_a_shape_without_elements_is_refused(shape):
    with pytest.raises(InputError, match="one or more lengths, each 1 or more"):
        Value("x", shape, "float32")


def test_nan_thresholds_and_other_directions_are_refused(graph):
    sign = graph.nodes[0]
    for role, value, message in (("threshold", np.nan, "NaN"), ("direction", 0, "direction of -1 and")):
        tensors = {**sign.tensors, role: np.full_like(sign.tensors[role], value)}
        with pytest.raises(InputError, match=message):
            Graph(graph.input, (replace(sign, tensors=tensors),), ("sign",))
