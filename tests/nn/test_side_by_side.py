"""Gradients of images side by side, against torch's of one at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitfactor.decompositions import compiled
from bitfactor.nn import BinaryConv2d, side_by_side

# Without tiles nothing lies side by side, and oneDNN's product of bfloat16 errs on some of these shapes.
KIND = torch.bfloat16 if compiled.has_tiles() else torch.float32


def integers(shape, largest, last):
    x = torch.randint(-largest, largest + 1, shape).to(KIND)
    return x.contiguous(memory_format=torch.channels_last) if last else x


@st.composite
def convolutions(draw):
    """Draw the shapes of a weight and of a map that keeps its width, and the geometry."""
    kernel = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2, 3, 5]))
    stride = draw(st.sampled_from([(1, 1), (2, 2), (1, 3), (2, 1)]))
    dilation = draw(st.sampled_from([1, 2])), 2 if kernel[1] == 2 else draw(st.sampled_from([1, 2]))
    padding = draw(st.integers(0, kernel[0] // 2)), dilation[1] * (kernel[1] - 1) // 2
    size = draw(st.integers(dilation[0] * (kernel[0] - 1) + 1, 12)), draw(st.integers(1, 9))
    channels, outputs = draw(st.sampled_from([1, 3, 16, 33])), draw(st.sampled_from([1, 8, 17]))
    samples = draw(st.sampled_from([2, 4, 6, 32, 36]))
    return (outputs, channels, *kernel), (samples, channels, *size), (stride, padding, dilation)


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@given(drawn=convolutions(), last=st.booleans())
def test_integers_are_those_of_float32_rounded_once(needed, drawn, last):
    of_weight, of_x, (stride, padding, dilation) = drawn
    x, weight = integers(of_x, 1, last), integers(of_weight, 1, False)
    shape = torch.nn.functional.conv2d(x.float(), weight.float(), None, stride, padding, dilation).shape
    given = integers(shape, 2, last), x, weight, stride, padding, dilation, 1, needed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "_gains", lambda gradient: True)
        found = side_by_side.gradients(*given)
    exact = side_by_side.gradients(*(one.float() for one in given[:3]), *given[3:])
    for wanted, one, other in zip(needed, found, exact, strict=True):
        assert torch.equal(one, other.to(KIND)) if wanted else one is None


@pytest.mark.parametrize(("samples", "groups", "padding"), [(3, 1, 1), (4, 2, 1), (4, 1, 0)])
def test_what_does_not_lie_side_by_side(monkeypatch, samples, groups, padding):
    """An odd number of images, groups, and a window that narrows the map."""
    monkeypatch.setattr(side_by_side, "_gains", lambda gradient: True)
    monkeypatch.setattr(side_by_side, "_beside", None)
    x, weight = integers((samples, 4, 5, 5), 1, True), integers((6, 4 // groups, 3, 3), 1, False)
    gradient = integers((samples, 6, 3 + 2 * padding, 3 + 2 * padding), 2, True)
    geometry = (1, 1), (padding, padding), (1, 1), groups
    of_x, of_weight = side_by_side.gradients(gradient, x, weight, *geometry, (True, True))
    assert of_x.shape == x.shape
    assert of_weight.shape == weight.shape


def test_small_maps_of_bfloat16_gain_where_there_are_tiles(monkeypatch):
    small, large = torch.zeros(4, 2, 8, 8), torch.zeros(4, 2, 8, 9)
    for tiles in (True, False):
        monkeypatch.setattr(side_by_side.compiled, "has_tiles", lambda tiles=tiles: tiles)
        assert side_by_side._gains(small.bfloat16()) is tiles
        assert not side_by_side._gains(small)
        assert not side_by_side._gains(large.bfloat16())


@pytest.mark.parametrize("samples", [32, 64])
@pytest.mark.parametrize("last", [True, False])
def test_compiled_it_is_the_same(monkeypatch, samples, last):
    """In the formats of memory that torch.compile expects."""
    monkeypatch.setattr(side_by_side, "_gains", lambda gradient: True)
    layer = BinaryConv2d(16, 24, 3, padding=1, latent="none")
    x = torch.randn(samples, 16, 4, 4)
    x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
    found = []
    for run in (layer, torch.compile(layer, backend="aot_eager")):
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        found.append(torch.autograd.grad(y, x, torch.ones_like(y))[0])
    assert torch.equal(*found)
    assert [one.is_contiguous(memory_format=torch.channels_last) for one in found] == [last, last]


def test_a_layer_has_the_same_gradients(monkeypatch):
    layer = BinaryConv2d(16, 24, 3, padding=1, latent="none")
    x = torch.randn(32, 16, 4, 4).contiguous(memory_format=torch.channels_last)

    def gradients(gains):
        monkeypatch.setattr(side_by_side, "_gains", lambda gradient: gains)
        layer.zero_grad()
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(given)
        y.backward(torch.ones_like(y))
        return [given.grad, *(one.grad for one in layer.parameters())]

    for one, other in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(one, other)
