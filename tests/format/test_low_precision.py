"""Layers in 8-bit integers are close to those in float32; an image of 8 bits goes in exactly."""

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import Graph, Node, Value
from bitfactor.format.graph import run
from bitfactor.format.low_precision import low_precision
from bitfactor.format.operations.quantised import MOST_TERMS

RNG = np.random.default_rng(0)
WINDOW = {"stride": (2, 1), "padding": (1, 2, 0, 1), "dilation": (1, 2), "groups": 1}


def floats(*shape):
    return RNG.standard_normal(shape, np.float32)


def graph_of(weight, found, attributes=None, shape=None, **tensors):
    """A conv2d, or a linear layer where there are no attributes, with a range."""
    op = "linear" if attributes is None else "conv2d"
    tensors = {
        "weight": weight,
        "bias": floats(len(weight)),
        "range": np.asarray(found, np.float32),
        **tensors,
    }
    node = Node("y", op, ("x",), attributes or {}, tensors)
    return Graph(Value("x", shape or weight.shape[1:], "float32"), (node,), ("y",))


@pytest.mark.parametrize("found", [(-5, 5), (0, 4), (-1, 9)])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_error_is_that_of_levels_and_weights(found, groups):
    graph = graph_of(floats(6, 3, 2, 4), found, {**WINDOW, "groups": groups}, (4 * groups, 9, 8))
    x = floats(3, 4 * groups, 9, 8).clip(*found)
    (y,), (z,) = run(graph, x), run(low_precision(graph), x)
    weight = graph.nodes[0].tensors["weight"]
    step, scale = (found[1] - found[0]) / 255, abs(weight).max() / 127
    terms, reach = 3 * 2 * 4, max(map(abs, found)) + step
    assert abs(y - z).max() <= terms * (step * abs(weight).max() + scale * reach) / 2
    assert abs(y - z).mean() < 0.02 * abs(y).mean()
    assert len(np.unique(z)) > 50


def test_an_image_of_8_bits_is_exact():
    """Weights that are whole steps too leave nothing but the rounding of float32, even beside the border."""
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    image = RNG.integers(0, 256, (2, 3, 9, 8)).astype(np.float32)
    x = (image / np.float32(255) - mean[:, None, None]) / std[:, None, None]
    weight = RNG.integers(-127, 128, (5, 3, 3, 3)).astype(np.float32)
    weight[:, 0, 0] = 127
    graph = graph_of(
        weight * std, [-mean / std, (1 - mean) / std], {**WINDOW, "padding": (0, 0, 0, 0)}, x.shape[1:]
    )
    (y,), (z,) = run(graph, x), run(low_precision(graph), x)
    np.testing.assert_allclose(z, y, rtol=0, atol=1e-5 * abs(y).max())


def test_padding_is_exact_where_0_is_a_level():
    weight = RNG.integers(-127, 128, (5, 3, 3, 3)).astype(np.float32)
    weight[:, 0, 0] = 127
    graph = graph_of(weight, (-55, 200), {**WINDOW, "padding": (2, 2, 2, 2)}, (3, 6, 6))
    x = RNG.integers(-55, 201, (2, 3, 6, 6)).astype(np.float32)
    (y,), (z,) = run(graph, x), run(low_precision(graph), x)
    np.testing.assert_allclose(z, y, rtol=0, atol=1e-5 * abs(y).max())


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_weights(dtype):
    weight, step = (floats(5, 40) * 30).astype(dtype), np.abs(floats(5)) / 30
    graph = graph_of(weight, (-4, 4), **({"step": step} if dtype == "int8" else {}))
    x = floats(3, 40).clip(-4, 4)
    (y,), (z,) = run(graph, x), run(low_precision(graph), x)
    assert abs(y - z).mean() < 0.02 * abs(y).mean()


def test_outputs_without_weight_have_their_bias():
    graph = graph_of(np.zeros((2, 7), np.float32), (-1, 1))
    (y,) = run(low_precision(graph), floats(1, 7))
    np.testing.assert_array_equal(y, graph.nodes[0].tensors["bias"][None])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((1, 1), "a finite range of its input, for precision 'low', found 1.0 to 1.0"),
        ((2, 1), "found 2.0 to 1.0"),
        ((0, np.inf), "found 0.0 to inf"),
        ((np.nan, 1), "found nan to 1.0"),
        (((0, 0, 0, 0), (1, 1, 0, 1)), "found 0.0 to 0.0"),
    ],
)
def test_ranges_that_are_none(found, message):
    graph = graph_of(floats(2, 4), found)
    with pytest.raises(InputError, match=rf"node 'y' \(linear\): expected .*{message}"):
        low_precision(graph)


def test_a_range_that_is_missing():
    graph = graph_of(floats(2, 4), (0, 1))
    del graph.nodes[0].tensors["range"]
    with pytest.raises(InputError, match="found none; export the model with calibration=samples"):
        low_precision(graph)


@pytest.mark.parametrize(("groups", "shape"), [(1, (3,)), (1, (2, 5)), (2, (2, 8))])
def test_ranges_of_another_shape(groups, shape):
    with pytest.raises(InputError, match=r"range shaped \(2,\)"):
        graph_of(floats(6, 3, 2, 4), floats(*shape), {**WINDOW, "groups": groups}, (4 * groups, 9, 8))


def test_more_products_than_32_bits_hold():
    graph = graph_of(np.ones((1, MOST_TERMS + 1), np.float32), (-1, 1))
    with pytest.raises(InputError, match=f"at most {MOST_TERMS} products of an output"):
        low_precision(graph)
