"""Layers that keep less for backward than torch's, with the same values and gradients."""

import pytest
import torch
from torch import nn

from bitfactor.nn import MaxPool2d, ReLU, analytic_alpha

FORMATS = [torch.contiguous_format, torch.channels_last]


def results_and_bytes_kept(layer, x):
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = x.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = layer(x)
    (y * torch.arange(y.numel()).view(y.shape).sin().to(y.dtype)).sum().backward()
    return y.detach(), x.grad, sum(kept.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize(
    "window",
    [(2,), (2, 2), (3, 2, 1), ((3, 2), (1, 2), (1, 0)), (3, 1, 1, 2), (3, 2, 1, 1, False, True), (1, 3)],
)
def test_a_max_pool_is_that_of_torch(window, memory_format, dtype) -> None:
    x = torch.randn(2, 3, 13, 10).round(decimals=1).to(dtype).contiguous(memory_format=memory_format)
    ours, theirs = (results_and_bytes_kept(kind(*window), x) for kind in (MaxPool2d, nn.MaxPool2d))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert ours[1].stride() == theirs[1].stride()
    assert ours[2] < theirs[2] / 2


def test_a_max_pool_keeps_torch_s_ways_where_it_has_none() -> None:
    x = torch.randn(3, 8, 8, requires_grad=True)
    assert torch.equal(MaxPool2d(2)(x), nn.MaxPool2d(2)(x))
    values, places = MaxPool2d(2, return_indices=True)(x[None])
    assert torch.equal(x.flatten(1).gather(1, places[0].flatten(1)), values[0].flatten(1))
    wide = torch.randn(1, 1, 3, 40_000, requires_grad=True)
    assert torch.equal(MaxPool2d(2)(wide), nn.MaxPool2d(2)(wide))


def test_a_nan_stays_one() -> None:
    x = torch.randn(1, 1, 4, 4)
    x[0, 0, 1, 2] = torch.nan
    ours, theirs = (results_and_bytes_kept(kind(2), x) for kind in (MaxPool2d, nn.MaxPool2d))
    torch.testing.assert_close(ours[0], theirs[0], equal_nan=True)
    assert ours[0].isnan().sum() == 1
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 64, 8, 8), (1, 70, 1, 1)])
def test_a_relu_is_that_of_torch(shape, memory_format, dtype) -> None:
    x = torch.randn(shape).to(dtype).contiguous(memory_format=memory_format)
    x[0, 0] = 0
    ours, theirs = (results_and_bytes_kept(kind(), x) for kind in (ReLU, nn.ReLU))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    if shape[1] == 64:
        assert ours[2] <= x.numel() / 8


def test_relus_of_other_inputs_are_torch_s_too() -> None:
    for x in (torch.randn(5), torch.randn(2, 3).T, torch.randn(2, 3, 4, 5)[..., ::2]):
        ours, theirs = (results_and_bytes_kept(kind(), x) for kind in (ReLU, nn.ReLU))
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 3), (8, 3, 3, 3), (1, 70, 1, 1)])
def test_the_mean_magnitude_keeps_a_byte_of_each_weight(shape, dtype) -> None:
    W = torch.randn(shape).to(dtype)
    W[0, 0] = 0
    ours, theirs = (
        results_and_bytes_kept(mean, W) for mean in (analytic_alpha, lambda W: W.abs().flatten(1).mean(1))
    )
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert ours[2] == W.numel()
