"""The algebra that the decompositions share: mode products, HOSVD, and the split of a matrix in two."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitfactor.decompositions.latent import Initialisation, expect_full
from bitfactor.decompositions.mixing import tucker_weights


def mode_product(x: Tensor, matrix: Tensor, mode: int) -> Tensor:
    """Return x times `matrix` (R, D_n) along mode n (equation 3): T[.. i ..] = sum_k M[i, k] x[.. k ..]."""
    product: Tensor = torch.tensordot(matrix, x, dims=([1], [mode]))
    return product.movedim(0, mode)


def tucker_weight(core: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Return core x_0 U0 x_1 U1 ... (equation 7) for a weight whose first two modes are channels.

    core (R0, R1, *taps), factors (O, R0), (C, R1), then one per tap mode; gives (O, C, *kernel), contiguous.
    """
    return tucker_weights(core, (), factors)[0]


def hosvd(
    weight: Tensor, ranks: Sequence[int], initialisation: Initialisation
) -> tuple[Tensor, list[Tensor]]:
    """Factorise: U_n holds the leading left singular vectors of unfolding n, core = W x_n U_n^T.

    Exact at full rank. `identity` gives unit matrices and W itself as the core. Give float64.
    """
    if initialisation == "identity":
        expect_full(ranks, weight.shape)
        return weight.clone(), [torch.eye(d, dtype=weight.dtype, device=weight.device) for d in weight.shape]
    factors = [leading_basis(gram(weight, mode), rank) for mode, rank in enumerate(ranks)]
    return project(weight, factors), factors


def project(weight: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Return the core of a weight in orthonormal factors: W x_0 U0^T x_1 U1^T ..."""
    for mode, factor in enumerate(factors):
        weight = mode_product(weight, factor.mT, mode)
    return weight.contiguous()


def gram(weight: Tensor, mode: int) -> Tensor:
    """Return X X^T of the unfolding X of a mode: its eigenvectors are X's left singular vectors."""
    unfolding = weight.movedim(mode, 0).flatten(1)
    return unfolding @ unfolding.mT


def leading_basis(matrix: Tensor, rank: int) -> Tensor:
    """Return the eigenvectors of a symmetric matrix that belong to its largest eigenvalues, (D, rank)."""
    eigenvectors: Tensor = torch.linalg.eigh(matrix)[1]  # in ascending order
    return eigenvectors.flip(1)[:, :rank].contiguous()


def split(matrix: Tensor, rank: int, initialisation: Initialisation) -> tuple[Tensor, Tensor, Tensor]:
    """Return u (M, K), s (K,), vt (K, N) with u diag(s) vt the best approximation of rank K.

    `identity` puts the matrix into the larger of the two factors and the unit matrix into the other.
    """
    if initialisation == "factorised":
        u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
        return u[:, :rank].contiguous(), s[:rank].clone(), vt[:rank].contiguous()
    expect_full((rank,), (min(matrix.shape),))
    unit = torch.eye(rank, dtype=matrix.dtype, device=matrix.device)
    ones = unit.new_ones(rank)
    return (unit, ones, matrix.clone()) if matrix.shape[0] == rank else (matrix.clone(), ones, unit)
