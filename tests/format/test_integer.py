"""Integers stand for what they were made of: multipliers, thresholds, bounds, and whole networks."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integers import of_input, of_output, run

from bitfactor.common.errors import InputError
from bitfactor.data.readers.cifar import read_scans
from bitfactor.format import Graph, InputSpec, Node, Value, load, pack_signs
from bitfactor.format.graph import run as run_reals
from bitfactor.format.integer import integer_graph, integers_of
from bitfactor.format.integer.bounds import magnitudes
from bitfactor.format.integer.convert import multipliers, scale_for, thresholds
from bitfactor.format.operations.integer import LARGEST, rounded
from bitfactor.runtime.runner import magnitudes_on
from bitfactor.runtime.zoo import file_of

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)
exponents = st.integers(-24, 8)


@given(st.integers(-(2**46), 2**46), st.integers(0, 30))
def test_rounding_is_to_nearest_and_halves_go_up(v, k):
    assert rounded(np.array([v]), k)[0] == (Fraction(v, 2**k) + Fraction(1, 2)).__floor__()


@given(st.lists(finite, min_size=1, max_size=5))
def test_multipliers_are_as_fine_as_16_bits_allow(factors):
    found = multipliers(np.array(factors))
    if found is None:
        assert round(max(map(abs, factors))) > LARGEST
        return
    made, k = found
    assert np.abs(made.astype(int)).max() <= LARGEST
    for factor, m in zip(factors, made.tolist(), strict=True):
        assert abs(Fraction(factor) * 2**k - m) <= Fraction(1, 2)
    assert k == 30 or np.rint(np.abs(factors).max() * 2.0 ** (k + 1)) > LARGEST


@given(st.floats(0, 2.0**100, width=32))
def test_a_scale_is_the_least_power_of_two_that_fits(largest):
    scale = scale_for(largest)
    assert np.frexp(scale)[0] == 0.5
    assert Fraction(largest) <= LARGEST * Fraction(scale)
    assert scale in (1, 2.0**-126) or Fraction(largest) > LARGEST * Fraction(scale) / 2


@given(
    st.one_of(finite, st.sampled_from([np.inf, -np.inf, 0.0])),
    st.sampled_from([-1, 1]),
    exponents,
    st.integers(-LARGEST, LARGEST),
)
def test_a_threshold_compares_as_the_real_one(t, direction, exponent, x):
    scale = 2.0**exponent
    (border,) = thresholds(np.array([t], np.float32), np.array([direction], np.int8), scale).tolist()
    real = Fraction(x) * Fraction(scale)
    passed = direction * t == -np.inf if np.isinf(t) else direction * real > direction * Fraction(t)
    assert (direction * x > border) == passed


@pytest.mark.parametrize("name", ["digits", "cifar10-resnet18"])
def test_weights_bound_every_value(name):
    model = load(file_of(name))
    mean, std = (np.array(part)[:, None, None] for part in (model.input_spec.mean, model.input_spec.std))
    pixels = np.random.default_rng(0).choice([0, 255], (8, *model.graph.input.shape))
    x = ((pixels / 255 - mean) / std).astype(np.float32)
    bounds, found = magnitudes(model.graph, model.input_spec), magnitudes_on(model.graph, x)
    assert all(found[value] <= bounds[value] * (1 + 1e-5) for value in found)


def test_nothing_leaves_its_type():
    model = load(file_of("digits"))
    graph = integer_graph(model.graph, model.input_spec)
    pixels = np.random.default_rng(0).choice([-128, 127], (16, 1, 8, 8))
    names = tuple(node.name for node in graph.nodes)
    limits = {"stream": LARGEST, "sum": LARGEST, "bit": 1, "output": 2**31 - 1}
    values = run(type(graph)(graph.input, graph.nodes, names, graph.values, graph.spec), pixels)
    for name, value in zip(names, values, strict=True):
        assert np.abs(value).max() <= limits[graph.values[name].type]


def layers(*nodes, shape=(4, 6, 6)):
    return Graph(Value("x", shape, "float32"), nodes, (nodes[-1].name,))


def real_layer(name, x, channels, outputs, seed=0, kernel=3, groups=1):
    draw = np.random.default_rng(seed)
    weight = draw.normal(size=(outputs, kernel, kernel, channels // groups)).astype(np.float32)
    tensors = {"weight": weight, "bias": draw.normal(size=outputs).astype(np.float32)}
    around = (kernel // 2,) * 4
    attributes = {"stride": (1, 1), "padding": around, "dilation": (1, 1), "groups": groups}
    return Node(name, "conv2d", (x,), attributes, tensors)


def of_channels(seed, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, 4).astype(np.float32)


POINTWISE = {
    "affine": ({}, {"scale": of_channels(1), "shift": of_channels(2)}),
    "scale": ({}, {"alpha": of_channels(3)}),
    "prelu": ({}, {"slope": of_channels(4)}),
    "relu": ({}, {}),
    "clip": ({"lower": -1.0, "upper": 1.0}, {}),
    "max_pool2d": ({"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}, {}),
    "avg_pool2d": ({"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1), "count_include_pad": 0}, {}),
    "upsample_nearest": ({"scale": (2, 2)}, {}),
    "flatten": ({}, {}),
    "pad": ({"axis": 1, "before": 1, "after": 2, "value": 0.5}, {}),
}


def hardtanh_block(shift):
    """Stem, clip, then scale, affine, shortcut and clip of a binary layer's sums."""
    signs = np.random.default_rng(7).choice(np.array([-1, 1], np.int8), (4, 3, 3, 4))
    window = {"stride": (1, 1), "padding": (1,) * 4, "dilation": (1, 1), "groups": 1, "pad_value": 0}
    ends = {"lower": -1.0, "upper": 1.0}
    threshold = {"threshold": of_channels(6), "direction": np.ones(4, np.int8)}
    return layers(
        real_layer("stem", "x", 4, 4),
        Node("before", "clip", ("stem",), ends, {}),
        Node("sign", "threshold", ("before",), {}, threshold),
        Node("conv", "binary_conv2d", ("sign",), window, {"weight": pack_signs(signs)}),
        Node("alpha", "scale", ("conv",), {}, {"alpha": of_channels(8, 0.01, 0.1)}),
        Node("bn", "affine", ("alpha",), {}, {"scale": of_channels(9), "shift": shift * of_channels(10)}),
        Node("sum", "add", ("bn", "before"), {}, {}),
        Node("y", "clip", ("sum",), ends, {}),
    )


@pytest.mark.parametrize("shift", [0.5, 1e20])
def test_a_batch_norm_a_shortcut_and_a_hardtanh_are_one_sum(shift):
    graph = hardtanh_block(np.float32(shift))
    x = np.random.default_rng(5).normal(size=(3, 4, 6, 6)).astype(np.float32)
    made = integer_graph(graph, ranges=magnitudes_on(graph, x))
    ops = [node.op for node in made.nodes]
    assert ops == ["conv", "weigh", "threshold", "binary_conv", "weigh"]
    assert made.values["stem"].scale == made.values["before"].scale == made.values["y"].scale
    (real,), (found,) = run_reals(graph, x), run(made, of_input(made, x))
    if shift < 1:
        assert np.abs(of_output(made, found) - real).mean() < 5e-3
    else:
        assert (np.abs(of_output(made, found)) == 1).all()
        assert (np.abs(made.nodes[-1].tensors["offset"].astype(int)) <= 2**30).all()


@pytest.mark.parametrize("op", POINTWISE)
def test_an_operation_is_near_the_real_one(op):
    attributes, tensors = POINTWISE[op]
    graph = layers(real_layer("stem", "x", 4, 4), Node("y", op, ("stem",), attributes, tensors))
    x = np.random.default_rng(5).normal(size=(3, 4, 6, 6)).astype(np.float32)
    ranges = magnitudes_on(graph, x)
    integers = integer_graph(graph, ranges=ranges)
    (found,), (wanted,) = run(integers, of_input(integers, x)), run_reals(graph, x)
    np.testing.assert_allclose(of_output(integers, found), wanted, atol=0.02 * ranges["stem"])


def test_rprelu_of_a_binary_layer_and_a_concatenation():
    """A shift on both sides of a PReLU; what is joined has one scale."""
    signs = np.random.default_rng(6).choice(np.array([-1, 1], np.int8), (4, 3, 3, 4))
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "pad_value": 0}
    border = {"threshold": of_channels(7), "direction": np.array([1, -1, 1, -1], np.int8)}
    one = np.ones(4, np.float32)
    graph = layers(
        real_layer("stem", "x", 4, 4),
        Node("sign", "threshold", ("stem",), {}, border),
        Node("sums", "binary_conv2d", ("sign",), window, {"weight": pack_signs(signs)}),
        Node("alpha", "scale", ("sums",), {}, {"alpha": of_channels(8, 0.05, 0.2)}),
        Node("before", "affine", ("alpha",), {}, {"scale": one, "shift": of_channels(9)}),
        Node("bent", "prelu", ("before",), {}, {"slope": of_channels(10, 0.0, 0.5)}),
        Node("after", "affine", ("bent",), {}, {"scale": one, "shift": of_channels(11)}),
        Node("joined", "concat", ("stem", "after"), {}, {}),
    )
    x = np.random.default_rng(12).normal(size=(2, 4, 6, 6)).astype(np.float32)
    integers = integer_graph(graph, ranges=magnitudes_on(graph, x))
    assert integers.values["stem"].scale == integers.values["after"].scale
    (found,), (wanted,) = run(integers, of_input(integers, x)), run_reals(graph, x)
    differ = np.abs(of_output(integers, found) - wanted) > 0.03 * np.abs(wanted).max()
    assert differ.mean() < 0.02  # signs next to their thresholds


@pytest.mark.parametrize("op", ["sigmoid", "softmax", "gelu", "exp"])
def test_what_is_not_defined_is_refused_by_name(op):
    graph = layers(real_layer("stem", "x", 4, 4), Node("y", op, ("stem",)))
    with pytest.raises(
        InputError, match=rf"node 'y' \({op}\): expected an operation that precision 'integer'"
    ):
        integer_graph(graph, ranges={})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused_by_name(value):
    node = real_layer("stem", "x", 4, 4)
    node.tensors["bias"][1] = value
    with pytest.raises(
        InputError, match=r"node 'stem' .*: expected weights that are numbers, found NaN or inf"
    ):
        integer_graph(layers(node), ranges={"x": 1.0, "stem": 1.0})


def test_a_slope_beyond_16_bits_is_no_matter_of_samples():
    slope = {"slope": np.full(4, 40_000, np.float32)}
    graph = layers(real_layer("stem", "x", 4, 4), Node("y", "prelu", ("stem",), {}, slope))
    said = "expected factors up to 32767 .*, found 40000; train it with smaller slopes, or use another"
    with pytest.raises(InputError, match=said):
        integer_graph(graph, ranges=dict.fromkeys(graph.values, 1.0))


def test_without_an_image_samples_are_needed():
    graph = layers(real_layer("stem", "x", 4, 4))
    with pytest.raises(InputError, match="export the run with --calibration N, or in Python"):
        integer_graph(graph)
    spec = InputSpec((6, 6), (6, 6), (0.5,) * 3, (0.2,) * 3)
    graph = layers(Node("y", "relu", ("x",)), shape=(3, 6, 6))
    with pytest.raises(InputError, match="of an image"):
        integer_graph(graph, spec)


def test_padding_beyond_what_a_pixel_can_be_is_refused():
    spec = InputSpec((6, 6), (6, 6), (-0.1, 0.3, 0.5), (0.2,) * 3)
    padded, plain = (layers(real_layer("y", "x", 3, 4, kernel=k), shape=(3, 6, 6)) for k in (3, 1))
    with pytest.raises(InputError, match=r"a mean from 0 to 1, found a mean of \(-0.1, 0.3, 0.5\); train"):
        integer_graph(padded, spec)
    assert integer_graph(plain, spec).outputs == ("y",)


@pytest.mark.parametrize("groups", [1, 3])
def test_each_channel_of_an_image_has_its_own_mean_and_deviation_also_in_groups(groups):
    spec = InputSpec((6, 6), (6, 6), (0.1, 0.5, 0.9), (0.1, 0.4, 0.9))
    graph = layers(real_layer("y", "x", 3, 6, groups=groups), shape=(3, 6, 6))
    pixels = np.random.default_rng(3).integers(0, 256, (4, 3, 6, 6))
    mean, std = (np.array(part, np.float32)[:, None, None] for part in (spec.mean, spec.std))
    (real,) = run_reals(graph, ((pixels / 255 - mean) / std).astype(np.float32))
    integers = integer_graph(graph, spec)
    (found,) = run(integers, pixels - 128)
    assert np.abs(of_output(integers, found) - real).max() < 0.02 * np.abs(real).max()


def test_a_sign_before_a_real_valued_layer_is_named():
    graph = layers(
        real_layer("stem", "x", 4, 4),
        Node("large", "scale", ("stem",), {}, {"alpha": np.full(4, 2.0**127, np.float32)}),
        Node("sign", "clip", ("large",), {"lower": 0.0, "upper": 1.0}),
        real_layer("y", "sign", 4, 4),
    )
    with pytest.raises(InputError, match="found one before a real-valued layer; make that layer's weights"):
        integer_graph(graph, ranges={name: 1e38 if name == "large" else 1.0 for name in graph.values})


def test_digits_keep_their_accuracy():
    scans, model = read_scans(), load(file_of("digits"))
    pixels = np.rint(np.array(scans.images)[scans.test] * 255).astype(np.int64).reshape(-1, 1, 8, 8)
    graph = integer_graph(model.graph, model.input_spec)
    (found,) = run(graph, pixels - 128)
    assert (found.argmax(1) == np.array(scans.classes)[scans.test]).sum() == 359  # of 360; in float32, 357


# Of the zoo's networks, for their golden inputs. A model file holds ranges, and the integers follow from
# them: a routine that makes other integers gives every file other bits.
RECORDED = {
    "cifar10-resnet18": "d708fd337494f0ee",
    "digits": "24b169474752f19d",
    "lsp-hourglass": "8f119757ac854c60",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_integers_are_the_recorded_ones(name):
    model = load(file_of(name))
    graph = integers_of(model)
    outputs = run(graph, of_input(graph, model.golden_input))
    found = hashlib.sha256(b"".join(y.astype("<i4").tobytes() for y in outputs)).hexdigest()
    assert found[:16] == RECORDED[name]
