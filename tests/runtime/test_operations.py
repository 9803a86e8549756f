"""Kernels of sequences and of products of computed values: each instruction set gives the same bits."""

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.runtime.sets import drawn, every_set, reference

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.plan import plan
from bitfactor.runtime.runner import runner

sizes = st.integers(1, 7)
channels = st.one_of(st.integers(1, 20), st.sampled_from([31, 32, 64, 65, 130]))
shapes = st.tuples(st.integers(1, 2), channels, sizes, sizes)
seeds = st.integers(0, 2**32 - 1)


def floats(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def check(nodes, x, isa):
    graph = Graph(Value("x", x.shape[1:], "float32"), tuple(nodes), (nodes[-1].name,))
    (found,), (expected,) = runner(graph, isa)(x), reference(graph, x)
    np.testing.assert_array_equal(found, expected)


@every_set
@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "reciprocal", "gelu", "sigmoid", "softmax"])
@drawn(25, shape=shapes, scale=st.sampled_from([1e-3, 1, 60]), seed=seeds)
def test_functions(isa, op, shape, scale, seed):
    x = floats(seed, *shape) * np.float32(scale)
    check([Node("y", op, ("x",))], np.abs(x) if op == "reciprocal" else x, isa)


@every_set
@pytest.mark.parametrize("op", ["exp", "log", "gelu", "sigmoid"])
def test_functions_at_the_ends(isa, op):
    x = np.float32([0, -0.0, 1e-38, -1e-38, 3e38, -3e38, 87.5, -88.5, 1, -1, 0.70710678])[None]
    check([Node("y", op, ("x",))], x, isa)


@every_set
@drawn(25, shape=shapes, seed=seeds)
def test_layer_norm(isa, shape, seed):
    check([Node("y", "layer_norm", ("x",), {"eps": 1e-5})], floats(seed, *shape), isa)


@every_set
@pytest.mark.parametrize("over", ["pixels", "channels"])
@drawn(25, shape=shapes, how=st.sampled_from(["mean", "sum", "max", "min"]), seed=seeds)
def test_reductions(isa, over, shape, how, seed):
    check([Node("y", f"reduce_{over}", ("x",), {"how": how})], floats(seed, *shape), isa)


@every_set
@pytest.mark.parametrize("how", ["max", "min"])
def test_of_equal_zeros_the_first_one_counts(isa, how):
    """Its sign shows in what comes after it."""
    x = np.array([[[[0.0, -0.0]]], [[[-0.0, 0.0]]]], np.float32)
    pool = {"kernel": (1, 2), "stride": (1, 1), "padding": (0, 0, 0, 0)}
    for node in (
        Node("m", "max_pool2d", ("x",), pool),
        Node("m", "reduce_pixels", ("x",), {"how": how}),
        Node("m", "reduce_channels", ("x",), {"how": how}),
    ):
        of = x.reshape(2, 2, 1, 1) if node.op == "reduce_channels" else x
        with np.errstate(divide="ignore"):
            check([node, Node("y", "reciprocal", ("m",))], of, isa)


@every_set
def test_what_depends_on_constants_alone_is_there_for_each_sample(isa):
    value = np.array([[-1.0], [2.0]], np.float32)
    x = np.zeros((3, 2), np.float32)
    check([Node("z", "constant", (), {}, {"value": value}), Node("y", "relu", ("z",))], x, isa)


@every_set
@drawn(25, groups=st.integers(1, 3), depth=channels, maps=sizes, rows=st.integers(1, 30), seed=seeds)
def test_matmul_with_its_transposed(isa, groups, depth, maps, rows, seed):
    attributes = {"groups": groups, "transposed": 1}
    check([Node("y", "matmul", ("x", "x"), attributes)], floats(seed, 2, groups * depth, maps, rows), isa)


@every_set
@drawn(25, groups=st.integers(1, 3), depth=sizes, maps=sizes, rows=st.integers(1, 30), seed=seeds)
def test_matmul(isa, groups, depth, maps, rows, seed):
    """Of x (groups depth, maps, rows) by a part of it, seen as (groups rows, maps, depth)."""
    turned = {
        "split": (-1, -1, groups, depth),
        "parts": (1, 1, 2),
        "repeats": (),
        "groups": ((0,), (3,), (2, 1)),
    }
    nodes = [
        Node("turned", "rearrange", ("x",), turned),
        Node("y", "matmul", ("x", "turned"), {"groups": groups, "transposed": 0}),
    ]
    check(nodes, floats(seed, 2, groups * depth, maps, rows), isa)


@every_set
@drawn(25, shape=shapes, size=st.tuples(sizes, sizes), align_corners=st.integers(0, 1), seed=seeds)
def test_resize_bilinear(isa, shape, size, align_corners, seed):
    attributes = {"size": size, "scale": (0.0, 0.0), "align_corners": align_corners}
    check([Node("y", "resize_bilinear", ("x",), attributes)], floats(seed, *shape), isa)


@every_set
@drawn(
    25,
    shape=shapes,
    kernel=st.tuples(sizes, sizes),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    seed=seeds,
)
def test_depthwise(isa, shape, kernel, stride, dilation, seed):
    c, padding = shape[1], tuple(dilation * (n // 2) + 1 for n in kernel * 2)
    attributes = {"stride": (stride, 1), "padding": padding, "dilation": (1, dilation), "groups": c}
    padded = [n + 2 * p for n, p in zip(shape[2:], padding, strict=False)]
    if any(n < dilation * (k - 1) + 1 for n, k in zip(padded, kernel, strict=True)):
        return
    tensors = {"weight": floats(seed, c, *kernel, 1), "bias": floats(seed + 1, c)}
    check([Node("y", "conv2d", ("x",), attributes, tensors)], floats(seed, *shape), isa)


@every_set
@drawn(25, shape=shapes, maps=st.integers(2, 4), outputs=channels, seed=seeds)
def test_windows_over_several_maps(isa, shape, maps, outputs, seed):
    n, c, height, width = shape
    sliding = {"stride": (1, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    threshold = {"threshold": floats(seed, c), "direction": np.ones(c, np.int8)}
    signs = np.where(floats(seed, outputs, 3, 3, c) > 0, np.int8(1), np.int8(-1))
    real = {"weight": floats(seed, outputs, 3, 3, c), "bias": floats(seed, outputs)}
    pool = {"kernel": (2, 2), "stride": (1, 1), "padding": (1, 1, 1, 1)}
    nodes = [
        Node("bits", "threshold", ("x",), {}, threshold),
        Node("sums", "binary_conv2d", ("bits",), {**sliding, "pad_value": 0}, {"weight": pack_signs(signs)}),
        Node("scaled", "scale", ("sums",), {}, {"alpha": floats(seed, outputs)}),
        Node("real", "conv2d", ("x",), sliding, real),
        Node("added", "add", ("real", "scaled")),
        Node("largest", "max_pool2d", ("added",), pool),
        Node("mean", "avg_pool2d", ("largest",), {**pool, "count_include_pad": 0}),
        Node("y", "upsample_nearest", ("mean",), {"scale": (2, 1)}),
    ]
    check(nodes, floats(seed, n, c, maps, height, width), isa)


@every_set
@drawn(
    25, shape=shapes, before=st.integers(0, 3), after=st.integers(0, 3), axis=st.integers(0, 2), seed=seeds
)
def test_moves(isa, shape, before, after, axis, seed):
    length = shape[1 + axis]
    table = floats(seed, length + 1, 5)
    nodes = [
        Node("padded", "pad", ("x",), {"axis": axis, "before": before, "after": after, "value": 0.25}),
        Node("taken", "take", ("x",), {"axis": axis, "indices": tuple(range(length))[::-1]}),
        Node("joined", "join", ("padded", "taken", "x"), {"axis": axis}),
        Node("cut", "clip", ("joined",), {"lower": 0.0, "upper": float(length)}),
        Node("rows", "embedding", ("cut",), {}, {"table": table}),
        Node("y", "permute", ("rows",), {"order": (2, 1, 3, 0)}),
    ]
    check(nodes, floats(seed, *shape), isa)


@every_set
@drawn(25, shape=shapes, seed=seeds)
def test_constants_for_each_number(isa, shape, seed):
    whole = shape[1:]
    nodes = [
        Node(
            "moved", "affine", ("x",), {}, {"scale": floats(seed, *whole), "shift": floats(seed + 1, *whole)}
        ),
        Node("fixed", "constant", (), {}, {"value": floats(seed, *whole)}),
        Node("sum", "add", ("moved", "fixed")),
        Node("mean", "reduce_pixels", ("sum",), {"how": "mean"}),
        Node("y", "add", ("sum", "mean")),
    ]
    check(nodes, floats(seed, *shape), isa)


def test_what_stays_in_memory_takes_no_step():
    """A sequence of one channel is the same memory transposed; a map becomes a sequence."""
    seen = {"split": (-1, -1, 2, 3), "parts": (1, 1, 2), "repeats": (), "groups": ((0, 1, 2), (3,))}
    nodes = [
        Node("z", "relu", ("x",)),
        Node("seen", "rearrange", ("z",), seen),
        Node("y", "softmax", ("seen",)),
    ]
    graph = Graph(Value("x", (6, 4, 5), "float32"), tuple(nodes), ("y",))
    stays = [step.stays for step in plan(graph)]
    assert stays == [False, True, False]
    x = floats(0, 2, 6, 4, 5)
    check(nodes, x, instruction_sets()[0])
