"""A threshold must say what the float pipeline says, for every value there is."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from bitfactor.exporter import fold
from bitfactor.format import Node

EXTREME = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30, 3e-45, 0.1, -0.3]
numbers = st.one_of(st.sampled_from(EXTREME), st.floats(-4, 4, width=32))


def vectors(channels):
    return st.lists(numbers, min_size=channels, max_size=channels).map(lambda x: np.array(x, np.float32))


def node(op, **tensors):
    return Node(op, op, ("x",), {}, tensors)


def compare(found, x):
    threshold, direction = (torch.from_numpy(part.astype(np.float32)) for part in found)
    return x * direction > threshold * direction


@settings(deadline=None, max_examples=60)
@given(vectors(3), vectors(3), vectors(3), st.lists(st.floats(0, 2, width=32), min_size=3, max_size=3))
def test_every_sum_of_a_binary_layer(alpha, scale, shift, slope):
    chain = [
        node("scale", alpha=alpha),
        node("prelu", slope=np.array(slope, np.float32)),
        node("affine", scale=scale, shift=shift),
    ]
    sums = torch.arange(-300.0, 301.0).repeat(3, 1)
    expected = fold.apply(chain, sums[None, :, :, None])[0, :, :, 0] > 0
    found = fold.of_sums(chain, channels=3, largest=300)
    assert found is not None
    assert torch.equal(compare(found, sums.T).T, expected)


def test_a_chain_that_turns_round_has_no_threshold():
    one = np.ones(1, np.float32)
    chain = [node("prelu", slope=-one), node("affine", scale=one, shift=-one)]
    assert fold.of_sums(chain, channels=1, largest=9) is None


@settings(deadline=None, max_examples=60)
@given(
    vectors(4), vectors(4), st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=50)
)
def test_float_thresholds_are_exact_on_both_sides(scale, shift, others):
    found = fold.of_floats([node("affine", scale=scale, shift=shift)], channels=4)
    edge = torch.from_numpy(np.nan_to_num(found[0]))
    around = [
        edge,
        torch.nextafter(edge, torch.tensor(torch.inf)),
        torch.nextafter(edge, torch.tensor(-torch.inf)),
    ]
    x = torch.stack([*around, *(torch.full((4,), value) for value in [*others, *EXTREME])])  # (M, 4)
    x = x[x.isfinite().all(1)]
    expected = fold.apply([node("affine", scale=scale, shift=shift)], x.T[None, :, :, None])[0, :, :, 0] > 0
    assert torch.equal(compare(found, x).T, expected)


@pytest.mark.parametrize("shape", [(2, 5, 7, 7), (3, 64, 8, 8), (1, 16, 3, 3)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_affine_rounds_as_torch_batch_norm_does(shape, memory_format):
    """What makes thresholds exact against a BatchNorm layer with its own mean and variance."""
    from bitfactor.exporter.builder import Builder
    from bitfactor.exporter.operators import LOWERING
    from bitfactor.format import Value

    generator = torch.Generator().manual_seed(0)
    channels = shape[1]
    weight, bias, mean = torch.randn(3, channels, generator=generator)
    var = torch.rand(channels, generator=generator) + 0.1
    x = torch.randn(shape, generator=generator).to(memory_format=memory_format)
    builder = Builder([Value("input", shape[1:], "float32")], shape[0])
    view = builder.view("input")
    LOWERING["aten.batch_norm.default"](builder, view, weight, bias, mean, var, False, 0.1, 1e-5, True)
    found = fold.apply(builder.nodes, x.contiguous())
    assert torch.equal(found, F.batch_norm(x, mean, var, weight, bias, eps=1e-5))


def test_an_affine_does_not_ask_for_an_eps_of_zero(monkeypatch):
    """torch 2.11 refuses one in `torch.nn.functional.batch_norm`."""

    def strict(*arguments, **named):
        raise ValueError("batch_norm eps must be positive")

    monkeypatch.setattr(F, "batch_norm", strict)
    scale, shift = np.array([2.0, -2.0], np.float32), np.array([-1.0, 1.0], np.float32)
    threshold, direction = fold.of_floats([node("affine", scale=scale, shift=shift)], channels=2)
    assert threshold.tolist() == [0.5, 0.5]
    assert direction.tolist() == [1, -1]
