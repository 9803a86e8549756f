"""The reference against torch, and its multiply-add against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.format import Graph, Node, Value, pack_signs
from bitfactor.format.graph import run
from bitfactor.format.operations import OPERATIONS, operation

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def signs(*shape: int) -> np.ndarray:
    return RNG.choice(np.array([-1, 1], np.int8), shape)


def of(op: str, x: np.ndarray, attributes: dict | None = None, **tensors: np.ndarray) -> np.ndarray:
    return OPERATIONS[op].reference(Node("y", op, ("x",), attributes or {}, tensors), x)


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)


@given(numbers, numbers, numbers)
@settings(max_examples=2000, deadline=None)
def test_fma_rounds_the_exact_result_once(a, b, c):
    expect_nearest(a, b, c)


@given(
    st.integers(-8, 8), st.integers(-8, 8), st.integers(-140, 0), st.integers(-140, 60), st.integers(-60, 60)
)
@settings(max_examples=2000, deadline=None)
def test_fma_at_ties_and_below_the_normal_numbers(i, j, c_exponent, exponent, shift):
    a, b = 1 + i * 2.0**-12, (1 + j * 2.0**-12) * 2.0**shift
    expect_nearest(a, b, float(np.float32(2.0**c_exponent)))
    expect_nearest(
        a, float(np.float32(2.0**exponent)), float(np.float32((1 + i * 2.0**-23) * 2.0**c_exponent))
    )


def expect_nearest(a: float, b: float, c: float) -> None:
    a, b, c = (np.float32(v) for v in (a, b, c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    found = operation.fma(a, b, c)
    error = abs(Fraction(float(found)) - exact)
    for neighbour in (np.nextafter(found, np.float32(-np.inf)), np.nextafter(found, np.float32(np.inf))):
        other = abs(Fraction(float(neighbour)) - exact)
        assert error < other or (error == other and int(found.view(np.int32)) % 2 == 0)


def test_exponentials_are_close_to_the_exact_ones():
    x = np.linspace(-87, 88, 200_001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(operation.exponential(x) / exact - 1)).max() < 2 * np.finfo(np.float32).eps
    assert operation.exponential(np.float32([-200, 0, -0.0])).tolist() == [np.exp(np.float32(-87)), 1, 1]


def test_sigmoid_and_softmax_are_torchs():
    x = floats(3, 10, 4) * np.float32(20)
    np.testing.assert_allclose(of("sigmoid", x), torch.sigmoid(torch.from_numpy(x)), rtol=1e-6)
    np.testing.assert_allclose(of("softmax", x), torch.softmax(torch.from_numpy(x), 1), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize(
    "shape", [(4, 64, 14, 14), (3, 7, 5, 5), (2, 65, 7, 9), (5, 33, 1, 1), (64, 100), (1, 5)]
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_affine_is_batch_norm_bit_for_bit(shape, memory_format):
    """Torch's own scale and shift are read off at 1 and 0."""
    c = shape[1]
    mean, variance, gamma, beta = (
        torch.from_numpy(v) for v in (floats(c), floats(c) ** 2, floats(c), floats(c))
    )
    x = torch.from_numpy(floats(*shape))
    if x.ndim == 4:
        x = x.contiguous(memory_format=memory_format)
    zeros, ones = torch.zeros(1, c), torch.ones(1, c)
    scale = F.batch_norm(ones, torch.zeros(c), variance, gamma, torch.zeros(c))[0].numpy()
    shift = F.batch_norm(zeros, mean, variance, gamma, beta)[0].numpy()
    expected = F.batch_norm(x, mean, variance, gamma, beta).numpy()
    np.testing.assert_array_equal(of("affine", x.numpy(), scale=scale, shift=shift), expected)


def test_binary_conv2d_is_exact():
    x, weight = signs(2, 12, 9, 8), signs(6, 3, 2, 4)
    window = {"stride": (2, 1), "dilation": (1, 2), "groups": 3}
    for pad_value in (-1, 0, 1):
        attributes = {**window, "padding": (1, 2, 0, 3), "pad_value": pad_value}
        padded = F.pad(torch.from_numpy(x).double(), (2, 3, 1, 0), value=pad_value)
        expected = F.conv2d(padded, torch.from_numpy(weight).double().permute(0, 3, 1, 2), **window)
        found = of("binary_conv2d", x, attributes, weight=pack_signs(weight))
        np.testing.assert_array_equal(found, expected.numpy())


def test_binary_linear_is_exact():
    x, weight = signs(3, 100), signs(7, 100)
    expected = x.astype(int) @ weight.T.astype(int)
    np.testing.assert_array_equal(of("binary_linear", x, weight=pack_signs(weight)), expected)


def test_conv2d_is_close_to_torch():
    x, weight, bias = floats(2, 12, 9, 8), floats(6, 3, 2, 4), floats(6)
    window = {"stride": (2, 1), "dilation": (1, 2), "groups": 3}
    padded = F.pad(torch.from_numpy(x), (2, 3, 1, 0))
    expected = F.conv2d(
        padded, torch.from_numpy(weight).permute(0, 3, 1, 2), torch.from_numpy(bias), **window
    )
    found = of("conv2d", x, {**window, "padding": (1, 2, 0, 3)}, weight=weight, bias=bias)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_linear_is_close_to_torch():
    x, weight, bias = floats(3, 100), floats(7, 100), floats(7)
    expected = F.linear(*map(torch.from_numpy, (x, weight, bias))).numpy()
    np.testing.assert_allclose(of("linear", x, weight=weight, bias=bias), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_pools_equal_torch(count_include_pad):
    x = floats(2, 5, 9, 8)
    window = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1, 1, 1)}
    torch_window = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 1)}
    found = of("avg_pool2d", x, {**window, "count_include_pad": count_include_pad})
    expected = F.avg_pool2d(torch.from_numpy(x), **torch_window, count_include_pad=bool(count_include_pad))
    np.testing.assert_array_equal(found, expected.numpy())
    found = of("max_pool2d", x, window)
    np.testing.assert_array_equal(found, F.max_pool2d(torch.from_numpy(x), **torch_window).numpy())


def test_upsampling_equals_torch():
    x = floats(2, 5, 4, 3)
    expected = F.interpolate(torch.from_numpy(x), scale_factor=(2, 3), mode="nearest").numpy()
    np.testing.assert_array_equal(of("upsample_nearest", x, {"scale": (2, 3)}), expected)


def test_pointwise_operations_equal_torch():
    x, slope, alpha = floats(2, 5, 9, 8), floats(5), floats(5)
    t = torch.from_numpy(x)
    np.testing.assert_array_equal(of("relu", x), t.relu().numpy())
    np.testing.assert_array_equal(of("prelu", x, slope=slope), F.prelu(t, torch.from_numpy(slope)).numpy())
    expected = t * torch.from_numpy(alpha)[:, None, None]
    np.testing.assert_array_equal(of("scale", x, alpha=alpha), expected.numpy())
    np.testing.assert_array_equal(of("flatten", x), t.flatten(1).numpy())
    expected = F.adaptive_avg_pool2d(t, 1).numpy()
    np.testing.assert_allclose(of("global_avg_pool", x), expected, rtol=1e-6, atol=1e-6)


def test_threshold_is_the_comparison_of_its_direction():
    x, point, direction = RNG.integers(-9, 9, (3, 20)).astype(np.int32), floats(20).round(), signs(20)
    expected = np.where(direction > 0, x > point, x < point)
    np.testing.assert_array_equal(of("threshold", x, threshold=point, direction=direction) > 0, expected)


def test_run_gives_outputs_in_order():
    graph = Graph(Value("x", (4,), "float32"), (Node("y", "relu", ("x",)),), ("y", "x"))
    x = floats(2, 4)
    y, same = run(graph, x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(same, x)
