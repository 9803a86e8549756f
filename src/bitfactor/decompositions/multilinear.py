"""The algebra that the decompositions share: mode products, HOSVD, and the split of a matrix in two."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bitfactor.decompositions.latent import Initialisation
from bitfactor.decompositions.precision import gradients_are_rough, matmul
from bitfactor.decompositions.rank import expect_full


def mode_product(x: Tensor, matrix: Tensor, mode: int) -> Tensor:
    """Return x times `matrix` (R, D_n) along mode n (equation 3): T[.. i ..] = sum_k M[i, k] x[.. k ..]."""
    product: Tensor = torch.tensordot(matrix, x, dims=([1], [mode]))
    return product.movedim(0, mode)


def tucker_weight(core: Tensor, factors: Sequence[Tensor], row: Tensor | None = None) -> Tensor:
    """Return core x_0 U0 x_1 U1 ... (equation 7) for a weight whose first two modes are channels.

    The spatial modes are one: their factors' Kronecker product is a small matrix over all taps. Applying it
    also puts the channels last, and then each channel mode is one matrix product of full size. Where its rank
    is reduced it comes last instead, so that the channel modes have fewer taps to go through.

    core (R0, R1, *taps), factors (O, R0), (C, R1), then one per tap mode; gives (O, C, *kernel), contiguous.
    With `row` (1, G) the core is the sum of G cores (G, R0, R1, *taps), weighted by it.

    For backward one tensor of W's size is kept, which would cost a product of channels to make again; it
    needs twice as many of these as forward, at least, whatever the order.
    """
    output, channel, *spatial = factors
    if not spatial:
        return matmul(matmul(output, _mixed(core, row)), channel.mT)
    taps = kronecker(spatial)  # (T, t)
    flat = core.flatten(2 if row is None else 3)
    if taps.shape[0] > taps.shape[1]:
        x = _mixed(flat, row).mT  # (R0, t, R1)
        x = matmul(output, x.flatten(1)).view(-1, channel.shape[1])  # (O t, R1)
        x = matmul(x, channel.mT).view(output.shape[0], taps.shape[1], channel.shape[0])
        x = _expand_taps(taps, x).mT.contiguous()  # (O, C, T)
    elif torch.compiler.is_compiling():
        x = _full_taps_weight(_tapped(flat, row, taps), output, channel)[0]
    else:
        x = _FullTaps.apply(flat, row, taps, output, channel)  # type: ignore[no-untyped-call]
    return x.view(*x.shape[:2], *(factor.shape[0] for factor in spatial))


def _expand_taps(taps: Tensor, x: Tensor) -> Tensor:
    return matmul(taps.expand(x.shape[0], -1, -1), x)


def _mixed(core: Tensor, row: Tensor | None) -> Tensor:
    return core if row is None else matmul(row, core.flatten(1)).view(core.shape[1:])


def _tapped(core: Tensor, row: Tensor | None, taps: Tensor) -> Tensor:
    """Return a core (R0, R1, t), or the sum of several, over all taps: (R0, T, R1)."""
    return _expand_taps(taps, _mixed(core, row).mT)


def _full_taps_weight(x: Tensor, output: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
    """Return W (O, C, T) of what `_tapped` gives, and the product before the last one, (O T, R1)."""
    half = matmul(output, x.flatten(1)).view(-1, channel.shape[1])
    W = matmul(half, channel.mT).view(output.shape[0], -1, channel.shape[0])
    return W.mT.contiguous(), half


class _FullTaps(torch.autograd.Function):
    """W = core x_taps x_0 output x_1 channel; gradients that may be rough are products of bfloat16."""

    @staticmethod
    def forward(
        ctx: Any, core: Tensor, row: Tensor | None, taps: Tensor, output: Tensor, channel: Tensor
    ) -> Tensor:
        W, half = _full_taps_weight(_tapped(core, row, taps), output, channel)
        half = half.bfloat16() if gradients_are_rough() else half
        ctx.save_for_backward(core, row, taps, output, channel, half)
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        core, row, taps, output, channel, half = ctx.saved_tensors
        of_core = of_row = of_taps = of_output = of_channel = None
        of_W = gradient.mT.to(half.dtype).reshape(-1, channel.shape[0])  # (O T, C)
        needs_core, needs_row, needs_taps, needs_output, needs_channel = ctx.needs_input_grad
        if needs_channel:
            of_channel = matmul(of_W.mT, half).to(channel.dtype)
        of_half = matmul(of_W, channel.to(half.dtype)).view(output.shape[0], -1)  # (O, T R1)
        if needs_output:
            x = _tapped(core, row, taps).flatten(1).to(half.dtype)
            of_output = matmul(of_half, x.mT).to(output.dtype)
        if needs_core or needs_row or needs_taps:
            of_x = matmul(output.mT.to(half.dtype), of_half).to(core.dtype)
            of_x = of_x.view(output.shape[1], -1, channel.shape[1])  # (R0, T, R1)
            of_taps = matmul(of_x, _mixed(core, row)).sum(0)
            of_core = _expand_taps(taps.mT, of_x).mT
            if row is not None:
                of_row = matmul(core.flatten(1), of_core.reshape(-1, 1)).mT
                of_core = row.view(-1, 1, 1, 1) * of_core
        return of_core, of_row, of_taps, of_output, of_channel


def kronecker(matrices: Sequence[Tensor]) -> Tensor:
    """Return the Kronecker product of matrices, the last one varying fastest."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = (product[:, None, :, None] * matrix[:, None]).flatten(2).flatten(0, 1)
    return product


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
