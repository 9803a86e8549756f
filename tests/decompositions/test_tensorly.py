"""Reconstructions against tensorly's, at any rank."""

from math import prod

import pytest
import tensorly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.decompositions import SVD, TensorTrain, Tucker, build_bank, build_shared

shapes = st.lists(st.integers(1, 7), min_size=2, max_size=5).map(tuple)
ranks = st.one_of(st.none(), st.integers(1, 8), st.floats(0.1, 0.99))
dtypes = st.sampled_from([torch.float32, torch.float64])


@pytest.fixture(autouse=True)
def _torch_backend():
    with tensorly.backend_context("pytorch"):
        yield


def fitting(rank, largest):
    """Ranks above the full one are refused."""
    return min(rank, largest) if isinstance(rank, int) else rank


def bonds(shape):
    return [min(prod(shape[:n]), prod(shape[n:])) for n in range(1, len(shape))]


def expect_equal(W, expected) -> None:
    bound = 1e-5 if W.dtype == torch.float32 else 1e-12
    assert (W - expected).abs().max() <= bound * max(expected.std(correction=0).item(), 1.0)


@settings(max_examples=40, deadline=None)
@given(shape=shapes, rank=ranks, dtype=dtypes)
def test_tucker(shape, rank, dtype) -> None:
    latent = Tucker.from_weight(torch.randn(shape, dtype=dtype), fitting(rank, max(shape)))
    expect_equal(latent(), tensorly.tucker_to_tensor((latent.core.detach(), list(latent.factors))))


def test_tucker_with_a_rank_per_mode() -> None:
    latent = Tucker.from_weight(torch.randn(8, 6, 3, 3), (4, 0.5, 2, 3))
    assert latent.core.shape == (4, 3, 2, 3)
    expect_equal(latent(), tensorly.tucker_to_tensor((latent.core.detach(), list(latent.factors))))


@settings(max_examples=40, deadline=None)
@given(shape=shapes, rank=ranks, dtype=dtypes)
def test_tensor_train(shape, rank, dtype) -> None:
    latent = TensorTrain.from_weight(torch.randn(shape, dtype=dtype), fitting(rank, max(bonds(shape))))
    expect_equal(latent(), tensorly.tt_to_tensor(list(latent.cores)))


@settings(max_examples=20, deadline=None)
@given(shape=shapes, rank=ranks, dtype=dtypes)
def test_svd(shape, rank, dtype) -> None:
    latent = SVD.from_weight(torch.randn(shape, dtype=dtype), fitting(rank, bonds(shape)[0]))
    expect_equal(latent(), (latent.u @ latent.s.diag() @ latent.vt).view(shape))


@settings(max_examples=20, deadline=None)
@given(shape=shapes, rank=ranks, grid=st.sampled_from([(3,), (2, 2), (2, 1, 2)]))
def test_bank(shape, rank, grid) -> None:
    places = [
        tuple(place) for place in torch.cartesian_prod(*map(torch.arange, grid)).view(-1, len(grid)).tolist()
    ]
    slices = build_bank([torch.randn(shape) for _ in places], places, fitting(rank, max(*shape, *grid)))
    bank = slices[0].bank
    whole = tensorly.tucker_to_tensor((bank.core.detach(), list(bank.factors)))
    for latent, place in zip(slices, places, strict=True):
        expect_equal(latent(), whole[place])


@settings(max_examples=20, deadline=None)
@given(shape=shapes, rank=ranks)
def test_shared(shape, rank) -> None:
    first, second = build_shared(
        [torch.randn(shape), torch.randn(shape).transpose(0, 1)], fitting(rank, max(shape))
    )
    assert first.output is second.channel
    expect_equal(first(), tensorly.tucker_to_tensor((first.core.detach(), list(first.factors))))
    expect_equal(second(), tensorly.tucker_to_tensor((second.core.detach(), list(second.factors))))
