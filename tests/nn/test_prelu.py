"""PReLU has the values and gradients of torch's."""

import pytest
import torch
from torch import nn

from bitfactor.nn import PReLU

SHAPES = [(4, 3, 5, 5), (4, 3, 7), (4, 3), (5,), ()]


def results_of(make, x, dtype=None):
    torch.manual_seed(0)
    layer = make(x.shape[1] if x.dim() > 1 else 1)
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
        y = layer(x)
    y.square().sum().backward()
    return y.detach(), x.grad, layer.weight.grad


@pytest.mark.parametrize("init", [0.25, 0.75, -0.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_torch(shape, init) -> None:
    x = torch.randn(shape)
    x.view(-1)[0] = 0
    ours, theirs = (results_of(lambda c, kind=kind: kind(c, init), x) for kind in (PReLU, nn.PReLU))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_chooses_the_types_that_it_chooses_for_torch(dtype) -> None:
    x = torch.randn(4, 3, 5, 5).to(dtype).contiguous(memory_format=torch.channels_last)
    ours, theirs = (results_of(kind, x, torch.bfloat16) for kind in (PReLU, nn.PReLU))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("size", [(8, 6), (1, 3)])
@pytest.mark.parametrize("channels", [1, 8, 24, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_channels_that_lie_side_by_side(dtype, channels, size) -> None:
    x = torch.randn(3, channels, *size).to(dtype).contiguous(memory_format=torch.channels_last)

    def results(kind):
        layer, given = kind(channels).to(dtype), x.clone().requires_grad_()
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(-0.5, 0.75, channels))
        y = layer(given)
        y.square().sum().backward()
        return y.detach(), given.grad, layer.weight.grad

    ours, theirs = results(PReLU), results(nn.PReLU)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ours[0], theirs[0])
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("slopes", [2, 8, 32])
def test_slopes_that_are_not_one_for_each_channel_are_refused(slopes) -> None:
    x = torch.randn(2, 16, 8, 8).contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match=f"parameter numbers = {slopes}"):
        PReLU(slopes)(x)


def test_one_slope_for_all_channels() -> None:
    x = torch.randn(4, 3, 5, 5)
    ours, theirs = (results_of(lambda _, kind=kind: kind(), x) for kind in (PReLU, nn.PReLU))
    torch.testing.assert_close(ours[2], theirs[2])


def test_a_gradient_without_bounds_stays_one():
    x, gradient = torch.randn(3, 4, requires_grad=True), torch.ones(3, 4)
    gradient[0] = float("inf")
    PReLU(4)(x).backward(gradient)
    assert (x.grad[0] == float("inf")).all()
    assert x.grad[1:].isfinite().all()
