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


def tucker_weight(core: Tensor, factors: Sequence[Tensor], rows: Tensor | None = None) -> Tensor:
    """Return core x_0 U0 x_1 U1 ... (equation 7) for a weight whose first two modes are channels.

    The spatial modes are one: their factors' Kronecker product is a small matrix over all taps. Applying it
    also puts the channels last, and then each channel mode is one matrix product of full size. Where its rank
    is reduced it comes last instead, so that the channel modes have fewer taps to go through.

    core (R0, R1, *taps), factors (O, R0), (C, R1), then one per tap mode; gives (O, C, *kernel), contiguous.
    With `rows` (P, G) there are G cores (G, R0, R1, *taps) and P weights (P, O, C, *kernel): the first of
    `rows` times the cores, and so on.

    For backward one tensor of W's size is kept, which would cost a product of channels to make again; it
    needs twice as many of these as forward, at least, whatever the order.
    """
    output, channel, *spatial = factors
    several = core[None] if rows is None else core
    if not spatial:
        W = matmul(matmul(output, _mixed(several, rows)), channel.mT)
        return W[0] if rows is None else W
    taps, several = kronecker(spatial), several.flatten(3)  # (T, t), (G, R0, R1, t)
    if taps.shape[0] > taps.shape[1]:
        x = _mixed(several, rows).mT.flatten(2)  # (P, R0, t R1)
        x = matmul(output, x).view(-1, channel.shape[1])
        x = matmul(x, channel.mT).view(-1, taps.shape[1], channel.shape[0])  # (P O, t, C)
        W = _expand_taps(taps, x).mT.contiguous()
    elif torch.compiler.is_compiling():
        W = _full_taps_weight(_tapped(_mixed(several, rows), taps), output, channel)[0]
    else:
        W = _FullTaps.apply(several, rows, taps, output, channel)  # type: ignore[no-untyped-call]
    shape = (output.shape[0], channel.shape[0], *(factor.shape[0] for factor in spatial))
    return W.view(shape if rows is None else (-1, *shape))


def _expand_taps(taps: Tensor, x: Tensor) -> Tensor:
    return matmul(taps.expand(x.shape[0], -1, -1), x)


def _mixed(cores: Tensor, rows: Tensor | None) -> Tensor:
    return cores if rows is None else matmul(rows, cores.flatten(1)).view(-1, *cores.shape[1:])


def _tapped(mixed: Tensor, taps: Tensor) -> Tensor:
    """Return the cores of P weights over all taps, (P, R0, T R1)."""
    return _expand_taps(taps, mixed.flatten(0, 1).mT).view(*mixed.shape[:2], -1)


def _full_taps_weight(x: Tensor, output: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
    """Return W (P O, C, T) of what `_tapped` gives, and the product before the last one, (P O T, R1)."""
    half = matmul(output.expand(x.shape[0], -1, -1), x).view(-1, channel.shape[1])
    W = matmul(half, channel.mT).view(x.shape[0] * output.shape[0], -1, channel.shape[0])
    return W.mT.contiguous(), half


class _FullTaps(torch.autograd.Function):
    """W = core x_taps x_0 output x_1 channel; gradients that may be rough are products of bfloat16."""

    @staticmethod
    def forward(
        ctx: Any, cores: Tensor, rows: Tensor | None, taps: Tensor, output: Tensor, channel: Tensor
    ) -> Tensor:
        W, half = _full_taps_weight(_tapped(_mixed(cores, rows), taps), output, channel)
        half = half.bfloat16() if gradients_are_rough() else half
        ctx.save_for_backward(cores, rows, taps, output, channel, half)
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cores, rows, taps, output, channel, half = ctx.saved_tensors
        of_cores = of_rows = of_taps = of_output = of_channel = None
        of_W = gradient.mT.to(half.dtype).reshape(-1, channel.shape[0])  # (P O T, C)
        needs_cores, needs_rows, needs_taps, needs_output, needs_channel = ctx.needs_input_grad
        if needs_channel:
            of_channel = matmul(of_W.mT, half).to(channel.dtype)
        of_half = matmul(of_W, channel.to(half.dtype)).view(
            -1, output.shape[0], taps.shape[0] * channel.shape[1]
        )
        del of_W, half  # as soon as they are not needed: each is as large as W
        if needs_output:
            x = _tapped(_mixed(cores, rows), taps).to(of_half.dtype)
            of_output = matmul(of_half, x.mT).sum(0).to(output.dtype)
            del x
        if needs_cores or needs_rows or needs_taps:
            of_x = matmul(output.mT.to(of_half.dtype).expand(len(of_half), -1, -1), of_half).to(cores.dtype)
            del of_half
            of_x = of_x.view(-1, taps.shape[0], channel.shape[1])  # (P R0, T, R1)
            of_taps = matmul(of_x, _mixed(cores, rows).flatten(0, 1)).sum(0)
            of_cores = _expand_taps(taps.mT, of_x).mT.reshape(-1, *cores.shape[1:])
            if rows is not None:
                of_rows = matmul(of_cores.flatten(1), cores.flatten(1).mT)
                of_cores = matmul(rows.mT, of_cores.flatten(1)).view(cores.shape)
        return of_cores, of_rows, of_taps, of_output, of_channel


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
