"""`Session(path, precision="integer")`: what it takes, what it refuses, and what a file says of it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.format import Graph, InputSpec, ModelFile, Node, Value, load, save
from bitfactor.format.graph import run
from bitfactor.format.integer import in_integers
from bitfactor.format.signature import FreeSizes, Length
from bitfactor.runtime import Session
from bitfactor.runtime.runner import magnitudes_on
from bitfactor.runtime.zoo import file_of

NETWORK = "cifar10-resnet18"


def images(count, seed=0):
    spec = load(file_of(NETWORK)).input_spec
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3, *spec.size)).astype(np.float32)
    mean, std = (np.array(part, np.float32)[:, None, None] for part in (spec.mean, spec.std))
    return (pixels / 255 - mean) / std


@pytest.fixture(scope="module")
def session():
    return Session(file_of(NETWORK), threads=1, precision="integer")


def with_ranges(**changes):
    model = load(file_of(NETWORK))
    made = replace(model, ranges={**magnitudes_on(model.graph, images(20)), **changes})
    return replace(made, integer_outputs=run(in_integers(made).graph, made.golden_input))


def test_an_answer_is_close_to_that_in_float(session):
    found, exact = session(images(4)), Session(file_of(NETWORK))(images(4))
    assert 0 < np.abs(found - exact).max() < 0.3 * np.abs(exact).max()


def test_samples_are_apart_and_calls_may_be_at_once(session):
    x = images(8)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: session(x[i : i + 1]), range(8)))
    np.testing.assert_array_equal(np.concatenate(found), session(x))


def test_an_image_is_what_a_prepared_one_is(session):
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)
    spec = session.model.input_spec
    prepared = (pixels.astype(np.float32) / 255 - spec.mean) / spec.std
    (scores,) = session(prepared.transpose(2, 0, 1)[None].astype(np.float32))
    found = session.predict(pixels, top=10)
    assert [one.label for one in found.classes] == [session.labels[i] for i in np.argsort(-scores)]


def test_ranges_of_samples_are_in_the_file_and_its_golden_outputs_hold(tmp_path):
    model = with_ranges()
    save(tmp_path / "net.safetensors", model)
    stored = load(tmp_path / "net.safetensors")
    assert stored.ranges == model.ranges
    calibrated = Session(tmp_path / "net.safetensors", precision="integer")
    calibrated.verify()
    assert not np.array_equal(
        calibrated(images(4)), Session(file_of(NETWORK), precision="integer")(images(4))
    )
    wrong = replace(model, integer_outputs=(model.integer_outputs[0] + 1,))
    save(tmp_path / "wrong.safetensors", wrong)
    with pytest.raises(InputError, match="the golden output of the file, exactly"):
        Session(tmp_path / "wrong.safetensors", precision="integer").verify()


@pytest.mark.parametrize("r", [float("nan"), float("inf"), -1.0, "1"])
def test_a_range_that_is_none(r):
    with pytest.raises(InputError, match="model file: range of 'conv1'"):
        replace(load(file_of(NETWORK)), ranges={"conv1": r})


def test_a_file_without_the_range_of_a_value_names_it(tmp_path):
    model = with_ranges()
    ranges = {name: r for name, r in model.ranges.items() if name != "conv1"}
    save(tmp_path / "net.safetensors", replace(model, ranges=ranges))
    with pytest.raises(InputError, match=r"node 'conv1' \(conv2d\): expected a value within bounds"):
        Session(tmp_path / "net.safetensors", precision="integer")


def test_memory_is_limited():
    file = file_of(NETWORK)
    with pytest.raises(InputError, match="max_bytes"):
        Session(file, precision="integer", max_bytes=1 << 20)
    Session(file, precision="integer", max_bytes=1 << 25)(images(2))


def layers(*nodes, shape=(3, 6, 6)):
    graph = Graph(Value("x", shape, "float32"), nodes, (nodes[-1].name,))
    golden = tuple(np.zeros((1, *graph.values[name].shape), np.float32) for name in graph.outputs)
    return ModelFile(graph, golden, InputSpec((6, 6), (6, 6), (0.5,) * 3, (0.25,) * 3))


def stem(outputs=4):
    weight = np.random.default_rng(0).standard_normal((outputs, 3, 3, 3)).astype(np.float32)
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    tensors = {"weight": weight, "bias": np.zeros(outputs, np.float32)}
    return Node("stem", "conv2d", ("x",), window, tensors)


@pytest.mark.parametrize("op", ["sigmoid", "gelu", "softmax"])
def test_an_operation_without_integers_is_named(op, tmp_path):
    save(tmp_path / "net.safetensors", layers(stem(), Node("y", op, ("stem",))))
    said = rf"node 'y' \({op}\): expected an operation that precision 'integer' defines"
    with pytest.raises(InputError, match=said):
        Session(tmp_path / "net.safetensors", precision="integer")
    with pytest.raises(InputError, match=said):
        bitfactor.freeze(tmp_path / "net.safetensors", tmp_path / "net.bfp", precision="integer")


def test_a_scale_of_single_pixels_is_named(tmp_path):
    alpha = np.ones((4, 6, 6), np.float32)
    save(tmp_path / "net.safetensors", layers(stem(), Node("y", "scale", ("stem",), {}, {"alpha": alpha})))
    with pytest.raises(InputError, match=r"node 'y' \(scale\): .* found scale of single pixels"):
        Session(tmp_path / "net.safetensors", precision="integer")


def test_a_factor_beyond_16_bits_is_named(tmp_path):
    steep = Node("y", "affine", ("stem",), {}, {"scale": np.full(4, 1e9, "f"), "shift": np.zeros(4, "f")})
    model = replace(layers(stem(), steep), ranges={"stem": 1.0, "y": 1.0})
    save(tmp_path / "net.safetensors", model)
    with pytest.raises(InputError, match=r"node 'y' \(affine\): expected factors up to 32767 of its scales"):
        Session(tmp_path / "net.safetensors", precision="integer")


def test_a_graph_of_integers_is_no_file(tmp_path):
    with pytest.raises(InputError, match="an operation that a file holds"):
        save(tmp_path / "net.safetensors", in_integers(load(file_of("digits"))))


def test_another_size(tmp_path):
    model = replace(layers(stem(), Node("y", "global_avg_pool", ("stem",))), other_shapes=((3, 9, 7),))
    save(tmp_path / "net.safetensors", model)
    session = Session(tmp_path / "net.safetensors", precision="integer")
    reference = Session(tmp_path / "net.safetensors", precision="integer", isa="reference")
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 7), np.float32)
    np.testing.assert_array_equal(session(x), reference(x))


def test_a_file_of_any_size(tmp_path):
    """The output is a stream whose length follows from the input's."""
    line = Node("y", "reshape", ("stem",), {"shape": (4, 36)})
    lengths = {"y": {"shape": (None, Length((("x", 1), ("x", 2))))}}
    model = replace(layers(stem(), line), free=FreeSizes(((0, 1, 1), (0, 2, 1)), lengths))
    save(tmp_path / "net.safetensors", model)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 7), np.float32)
    found, expected = (
        Session(tmp_path / "net.safetensors", precision="integer", isa=isa)(x) for isa in (None, "reference")
    )
    assert found.shape == (2, 4, 56)
    np.testing.assert_array_equal(found, expected)


def test_it_is_timed_like_others():
    report = bitfactor.bench("digits", precision=["highest", "integer"], runs=2)
    assert [engine["name"].endswith("integer)") for engine in report.engines] == [False, True]
