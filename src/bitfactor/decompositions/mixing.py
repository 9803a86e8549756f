"""The weights of a Tucker decomposition, or of a grid of them, in one step, and its gradients.

    W[p] = output x[p] channel^T for each tap,    x[p] = sum_g rows[p, g] taps core[g],

rows and taps the Kronecker products of the grid's and of the taps' factors. These are small matrices: making
x is bound by memory. The compiled core takes all of it a few slices at a time, which stay in its caches. The
way of torch is one product for x, and one for each channel mode.

For backward one tensor of each weight's size is kept, which would cost a product of channels to make again.
Backward needs at least twice as many products as forward, in any order. Rough gradients are of bfloat16.

Last comes the algebra that the decompositions share: mode products, HOSVD, and the split of a matrix in two.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bitfactor.decompositions import compiled
from bitfactor.decompositions.latent import Initialisation, expect_full
from bitfactor.decompositions.precision import gradients_are_rough, matmul

_LEAST_OF_TILES = 128 * 256  # filters by channels: with fewer, calls and copies take as long


def kronecker(matrices: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return the Kronecker product of matrices, the last one varying fastest; of none (1, 1) as `like`."""
    if not matrices:
        return like.new_ones(1, 1)
    product = matrices[0]
    for matrix in matrices[1:]:
        product = (product[:, None, :, None] * matrix[:, None]).flatten(2).flatten(0, 1)
    return product


def tucker_weights(core: Tensor, grid: Sequence[Tensor], factors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the weights (O, C, *kernel) of all places of a grid, in order.

    core (*grid, R0, R1, *taps); a factor for each mode of the grid, (O, R0), (C, R1), one for each tap mode.
    Where the rank of the taps is reduced they come last, so that the channel modes have fewer of them to go
    through.
    """
    output, channel, *spatial = factors
    small = [*grid, *spatial]
    taps_last = prod([len(factor) for factor in small]) > prod([factor.shape[1] for factor in small])
    taken = not taps_last and _takes(core, *grid, *factors)
    if taken and not _gains_by_tiles(output, channel):
        weights: tuple[Tensor, ...] = _Compiled.apply(len(grid), core, *grid, *factors)  # type: ignore[no-untyped-call]
        return weights
    shape = (len(output), len(channel), *map(len, spatial))
    rows, taps = kronecker(grid, core), kronecker(spatial, core)
    cores = core.reshape(rows.shape[1], output.shape[1], channel.shape[1], -1)  # (G, R0, R1, t)
    if taps_last:
        y = _products(cores.permute(0, 3, 1, 2), output, channel)[1].permute(1, 2, 0, 3)  # (O, C, G, t)
        W = matmul(y.flatten(2).flatten(0, 1), kronecker([rows, taps], core).mT)
        return tuple(one.reshape(shape) for one in W.view(*y.shape[:2], len(rows), -1).unbind(2))
    if compiled.is_followed():
        W = _products(_mix(cores, rows, taps), output, channel)[1]
    elif taken:
        weights = _OfTiles.apply(cores, rows, taps, output, channel)  # type: ignore[no-untyped-call]
        return tuple(one.view(shape) for one in weights)
    else:
        W = _Plain.apply(cores, rows, taps, output, channel)  # type: ignore[no-untyped-call]
    return tuple(one.view(shape) for one in W.unbind())


def _gains_by_tiles(output: Tensor, channel: Tensor) -> bool:
    return gradients_are_rough() and compiled.has_tiles() and len(output) * len(channel) >= _LEAST_OF_TILES


def _takes(*operands: Tensor) -> bool:
    return all(x.dtype == torch.float32 for x in operands) and compiled.takes(*operands)


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grid: int, *operands: Tensor) -> tuple[Tensor, ...]:
        operands = tuple(operand.contiguous() for operand in operands)
        core, *factors = operands
        output, channel, *spatial = factors[grid:]
        trainer = compiled.trainer()
        coupled = gradients_are_rough() and trainer.couples()
        sizes = [size for factor in factors for size in factor.shape]
        places, taps = prod(map(len, factors[:grid])), prod(map(len, spatial))
        ctx.described = grid, sizes, coupled
        ctx.room = places, taps, output.shape[1], channel.shape[1]
        shape = (len(output), len(channel), *map(len, spatial))
        weights = tuple(core.new_empty(shape) for _ in range(places))
        x = core.new_empty(ctx.room)
        kept = (len(output) + 1) // 2 if coupled else len(output)
        y = core.new_empty(places, taps, kept, channel.shape[1])
        where = compiled.addresses(*operands), *compiled.addresses(x, y), compiled.addresses(*weights)
        trainer.weights(*ctx.described, *where)
        ctx.save_for_backward(*operands, y)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *of_weights: Tensor) -> tuple[Tensor | None, ...]:
        *operands, y = ctx.saved_tensors
        gradients = [torch.empty_like(operand) for operand in operands]
        given = [of_weight.contiguous() for of_weight in of_weights]
        x = y.new_empty(ctx.room)
        where = compiled.addresses(*operands), *compiled.addresses(x, y)
        made = compiled.addresses(*given), compiled.addresses(*gradients)
        compiled.trainer().of_weights(*ctx.described, *where, *made)
        return None, *_wanted(gradients, ctx.needs_input_grad[1:])


def _wanted(gradients: Sequence[Tensor], needed: Sequence[bool]) -> tuple[Tensor | None, ...]:
    return tuple(x if wanted else None for x, wanted in zip(gradients, needed, strict=True))


class _Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        cores, rows, taps, output, channel = operands
        half, W = _products(_mix(cores, rows, taps), output, channel)
        ctx.save_for_backward(*operands, half.bfloat16() if gradients_are_rough() else half)
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_W: Tensor) -> tuple[Tensor | None, ...]:
        cores, rows, taps, output, channel, half = ctx.saved_tensors
        dtype, places = half.dtype, len(rows)
        output, channel = (x.to(dtype).expand(places, -1, -1) for x in (output, channel))
        both, inner = kronecker([rows, taps], rows).to(dtype), _inner(cores).to(dtype)
        x = matmul(both, inner).view(places, -1, cores.shape[2])  # (P, T R0, R1)
        of_W = of_W.to(dtype).flatten(2)  # (P, O, C T)
        of_output = matmul(of_W, half)
        of_half = matmul(of_W.mT, output).view(places, channel.shape[1], -1)  # (P, C, T R0)
        of_channel = matmul(of_half, x)
        of_x = matmul(of_half.mT, channel).view(len(both), -1)  # (P T, R0 R1)
        of_mix = _gradients_of_mix(of_x, both, inner, cores, rows, taps)
        of_factors = (terms.sum(0, dtype=cores.dtype) for terms in (of_output, of_channel))
        return _wanted([*of_mix, *of_factors], ctx.needs_input_grad)


class _OfTiles(torch.autograd.Function):
    """Forward of the compiled core, to the bit; backward torch's, whose products of bfloat16 use tiles."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> tuple[Tensor, ...]:
        cores, rows, taps, output, channel = operands = tuple(operand.contiguous() for operand in operands)
        places = len(rows)
        weights = tuple(cores.new_empty(len(output), len(channel), len(taps)) for _ in range(places))
        x = cores.new_empty(places, len(taps), *cores.shape[1:3])
        y = cores.new_empty(places, len(taps), len(output), cores.shape[2])
        factors = rows, output, channel, taps
        sizes = [size for factor in factors for size in factor.shape]
        where = compiled.addresses(cores, *factors), *compiled.addresses(x, y), compiled.addresses(*weights)
        compiled.trainer().weights(1, sizes, False, *where)
        ctx.save_for_backward(*operands, y.bfloat16())
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *of_weights: Tensor) -> tuple[Tensor | None, ...]:
        cores, rows, taps, output, channel, y = ctx.saved_tensors
        # What is mixed has as many rows as taps and places, too few for tiles: it stays float32.
        both, inner = kronecker([rows, taps], rows), _inner(cores)
        of_W = y.new_empty(len(rows), len(taps), len(output), len(channel))
        for place, of_weight in zip(of_W, of_weights, strict=True):
            place.copy_(of_weight.permute(2, 0, 1))
        of_W = of_W.flatten(0, 2)  # (P T O, C)
        x = matmul(both, inner).bfloat16().view(len(both), *cores.shape[1:3])  # (P T, R0, R1)
        of_channel = matmul(of_W.mT, y.flatten(0, 2))
        of_y = matmul(of_W, channel.bfloat16()).view(len(both), len(output), -1)  # (P T, O, R1)
        of_output = matmul(of_y, x.mT).sum(0, dtype=cores.dtype)
        of_x = matmul(output.bfloat16().mT.expand(len(both), -1, -1), of_y).flatten(1)  # (P T, R0 R1)
        of_mix = _gradients_of_mix(of_x.to(cores.dtype), both, inner, cores, rows, taps)
        return _wanted([*of_mix, of_output, of_channel.to(cores.dtype)], ctx.needs_input_grad)


def _gradients_of_mix(
    of_x: Tensor, both: Tensor, inner: Tensor, cores: Tensor, rows: Tensor, taps: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return those of cores, rows and taps of x = both inner, (P T, R0 R1)."""
    of_cores = matmul(both.mT, of_x).view(len(cores), taps.shape[1], -1).mT.to(cores.dtype)
    of_both = matmul(of_x, inner.mT).to(cores.dtype).view(len(rows), len(taps), *rows.shape[1:], -1)
    of_rows = (of_both * taps[:, None]).sum((1, 3))
    of_taps = (of_both * rows[:, None, :, None]).sum((0, 2))
    return of_cores.reshape(cores.shape), of_rows, of_taps


def _inner(cores: Tensor) -> Tensor:
    return cores.flatten(1, 2).mT.flatten(0, 1)  # (G t, R0 R1)


def _mix(cores: Tensor, rows: Tensor, taps: Tensor) -> Tensor:
    x = matmul(kronecker([rows, taps], rows), _inner(cores))
    return x.view(len(rows), len(taps), *cores.shape[1:3])


def _products(x: Tensor, output: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of x (P, T, R0, R1), products along one channel mode, (P, C T, R0), and both, (P, O, C, T)."""
    places = len(x)
    half = matmul(channel.expand(places, -1, -1), x.flatten(1, 2).mT).view(places, -1, output.shape[1])
    return half, matmul(output.expand(places, -1, -1), half.mT).view(places, len(output), len(channel), -1)


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
