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


def test_one_slope_for_all_channels() -> None:
    x = torch.randn(4, 3, 5, 5)
    ours, theirs = (results_of(lambda _, kind=kind: kind(), x) for kind in (PReLU, nn.PReLU))
    torch.testing.assert_close(ours[2], theirs[2])
