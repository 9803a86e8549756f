"""What a rank is, which ranks fit, and that a low rank approximates best."""

import pytest
import torch

from bitfactor.common.errors import InputError
from bitfactor.decompositions import SVD, Dense, Product, TensorTrain, Tucker, build_bank
from bitfactor.decompositions.latent import resolve_rank
from bitfactor.decompositions.shared import build_shared


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (None, (64, 32, 3, 3)),
        (16, (16, 16, 3, 3)),
        (0.5, (32, 16, 2, 2)),
        (1, (1, 1, 1, 1)),
        ((8, 0.25, 3, 1), (8, 8, 3, 1)),
        ([8, 8, 3, 3], (8, 8, 3, 3)),
    ],
)
def test_resolve(rank, expected) -> None:
    assert resolve_rank(rank, (64, 32, 3, 3)) == expected


NO_RANKS = [
    0,
    -1,
    1.5,
    0.0,
    1.0,
    True,
    "half",
    float("nan"),
    (4, 4),
    (0, 1, 1, 1),
    65,
    (64, 33, 3, 3),
    [1.0] * 4,
]


@pytest.mark.parametrize("rank", NO_RANKS, ids=str)
def test_what_is_no_rank(rank) -> None:
    with pytest.raises(InputError, match="rank"):
        resolve_rank(rank, (64, 32, 3, 3))


@pytest.mark.parametrize("decomposition", [SVD, Product])
def test_a_low_rank_is_the_best_approximation_of_the_matrix(decomposition) -> None:
    weight = torch.randn(8, 4, 3, 3, dtype=torch.float64)
    values = torch.linalg.svdvals(weight.flatten(1))
    error = (decomposition.from_weight(weight, 5)() - weight).norm().item()
    assert error == pytest.approx(values[5:].norm().item())


def test_rank_one_and_the_full_rank_are_hard_to_confuse() -> None:
    with pytest.raises(InputError, match="leave rank out for the full rank; 1 is rank one"):
        resolve_rank(1.0, (64, 32))


@pytest.mark.parametrize("decomposition", [SVD, Tucker, TensorTrain, Product])
def test_identity_needs_full_rank(decomposition) -> None:
    with pytest.raises(InputError, match="full rank"):
        decomposition.from_weight(torch.randn(8, 4, 3, 3), 2, "identity")


def test_no_decomposition_has_no_rank() -> None:
    with pytest.raises(InputError, match="no rank"):
        Dense.from_weight(torch.randn(4, 4), 2)


def test_a_bank_takes_a_rank_per_mode_of_the_weight_or_of_the_whole() -> None:
    weights, places = [torch.randn(8, 8, 3, 3) for _ in range(4)], [(0,), (1,), (2,), (3,)]
    assert build_bank(weights, places, (4, 4, 3, 3))[0].core.shape == (4, 4, 4, 3, 3)
    assert build_bank(weights, places, (2, 4, 4, 3, 3))[0].core.shape == (2, 4, 4, 3, 3)


@pytest.mark.parametrize(
    "build",
    [
        lambda W: Tucker.from_weight(W, (4, 6, 3, 3)),
        lambda W: TensorTrain.from_weight(W, (4, 9, 3)),
        lambda W: build_bank([W, W.flip(1)], [(0,), (1,)], (4, 6, 3, 3))[0],
        lambda W: build_shared([W, 1e-6 * W.flip(0)], 4)[0],
    ],
    ids=["tucker", "tt", "bank", "shared"],
)
def test_a_low_rank_keeps_what_is_large(build) -> None:
    torch.manual_seed(0)
    W = torch.randn(8, 6, 3, 3).double() * (10.0 ** -torch.arange(8.0)).double().view(8, 1, 1, 1)
    assert (build(W)() - W).norm() < 0.5 * W.norm()
