"""The algebra that the decompositions share: mode products, HOSVD, and the split of a matrix in two."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bitfactor.decompositions.latent import Initialisation
from bitfactor.decompositions.mixing import kronecker, mix, unmix
from bitfactor.decompositions.precision import gradients_are_rough, matmul
from bitfactor.decompositions.rank import expect_full


def mode_product(x: Tensor, matrix: Tensor, mode: int) -> Tensor:
    """Return x times `matrix` (R, D_n) along mode n (equation 3): T[.. i ..] = sum_k M[i, k] x[.. k ..]."""
    product: Tensor = torch.tensordot(matrix, x, dims=([1], [mode]))
    return product.movedim(0, mode)


def tucker_weight(core: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Return core x_0 U0 x_1 U1 ... (equation 7) for a weight whose first two modes are channels.

    core (R0, R1, *taps), factors (O, R0), (C, R1), then one per tap mode; gives (O, C, *kernel), contiguous.
    """
    return tucker_weights(core[None], core.new_ones(1, 1), factors)[0]


def tucker_weights(cores: Tensor, rows: Tensor, factors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return P weights (O, C, *kernel) of G cores: the first of `rows` (P, G) times the cores, and so on.

    cores (G, R0, R1, *taps), factors (O, R0), (C, R1), then one per tap mode. All modes but the channels' are
    one: the Kronecker product of rows and taps is a small matrix. Then each channel mode is one matrix
    product of full size for each weight, in an order that leaves W as it is to be. Where the rank of the taps
    is reduced they come last instead, so that the channel modes have fewer of them to go through.

    For backward one tensor of each weight's size is kept, which would cost a product of channels to make
    again; it needs twice as many of these as forward, at least, whatever the order.
    """
    output, channel, *spatial = factors
    taps = kronecker(spatial) if spatial else cores.new_ones(1, 1)  # (T, t)
    cores = cores.flatten(3) if spatial else cores[..., None]  # (G, R0, R1, t)
    shape = (len(output), len(channel), *(factor.shape[0] for factor in spatial))
    if len(rows) * len(taps) > rows.shape[1] * taps.shape[1]:
        x = cores.permute(0, 3, 1, 2)
        y = torch.stack([W for _, W in _channel_products(x, output, channel)], dim=2)  # (O, C, G, t)
        W = matmul(y.flatten(2).flatten(0, 1), kronecker([rows, taps]).mT).view(*y.shape[:2], len(rows), -1)
        return tuple(one.reshape(shape) for one in W.unbind(2))
    if torch.compiler.is_compiling():
        x = matmul(kronecker([rows, taps]), cores.flatten(1, 2).mT.flatten(0, 1))
        x = x.view(len(rows), len(taps), *cores.shape[1:3])
        return tuple(W.view(shape) for _, W in _channel_products(x, output, channel))
    weights: tuple[Tensor, ...] = _MixedWeights.apply(cores, rows, taps, output, channel, shape)  # type: ignore[no-untyped-call]
    return weights


def _channel_products(x: Tensor, output: Tensor, channel: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, of each x (T, R0, R1), the products along one channel mode, (C T, R0), and both, (O, C, T)."""
    for one in x:
        half = matmul(channel, one.flatten(0, 1).mT).view(-1, output.shape[1])
        yield half, matmul(output, half.mT).view(len(output), len(channel), -1)


class _MixedWeights(torch.autograd.Function):
    """The weights, in a shape, of `mix` and `_channel_products`; rough gradients are of bfloat16.

    Their backward takes several small weights at once, whose products cost less than what a call costs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cores: Tensor,
        rows: Tensor,
        taps: Tensor,
        output: Tensor,
        channel: Tensor,
        shape: tuple[int, ...],
    ) -> tuple[Tensor, ...]:
        x = mix(cores, rows, taps, cores.dtype)
        halves, weights = zip(*_channel_products(x, output, channel), strict=True)
        rough = gradients_are_rough()
        ctx.at_once = max(1, _AT_ONCE // max(1, weights[0].numel())) if rough else 1
        kept = [
            _stacked(halves[i : i + ctx.at_once], torch.bfloat16 if rough else cores.dtype)
            for i in range(0, len(halves), ctx.at_once)
        ]
        ctx.save_for_backward(cores, rows, taps, output, channel, *kept)
        return tuple(W.view(shape) for W in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cores, rows, taps, output, channel, *kept = ctx.saved_tensors
        dtype = kept[0].dtype
        output, channel = output.to(dtype), channel.to(dtype)
        x = mix(cores, rows, taps, dtype)  # (P, T, R0, R1)
        of_output, of_channel = [], []
        for half, one in zip(kept, torch.split(x.flatten(1, 2), ctx.at_once), strict=True):
            n = len(half)  # (n, C T, R0), as `one` is (n, T R0, R1)
            of_W = _stacked(gradients[:n], dtype).flatten(2)  # (n, O, C T)
            gradients = gradients[n:]
            of_output.append(matmul(of_W, half))
            of_half = matmul(of_W.mT, output.expand(n, -1, -1)).view(n, len(channel), -1)  # (n, C, T R0)
            of_channel.append(matmul(of_half, one))
            of_one = matmul(of_half.mT, channel.expand(n, -1, -1))
            if n == len(x):
                x = of_one.view(x.shape)
            else:
                one.copy_(of_one)  # the gradient takes its place
        of_factors = [torch.cat(terms).sum(0, dtype=cores.dtype) for terms in (of_output, of_channel)]
        wanted = zip((*unmix(x, cores, rows, taps), *of_factors), ctx.needs_input_grad, strict=False)
        return *(gradient if needed else None for gradient, needed in wanted), None


_AT_ONCE = 2**19  # numbers of weights; more no longer stay in a cache of the second level


def _stacked(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].to(dtype)[None]
    stacked = torch.empty(len(tensors), *tensors[0].shape, dtype=dtype, device=tensors[0].device)
    torch._foreach_copy_(stacked.unbind(), list(tensors))
    return stacked


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
