"""Tensor-train decomposition."""

from collections.abc import Sequence
from math import prod
from typing import Self

from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank, expect_full, resolve_rank
from bitfactor.decompositions.multilinear import split
from bitfactor.decompositions.precision import matmul, working


class TensorTrain(Latent):
    """W(i_0, i_1, ...) = G0(:, i_0, :) G1(:, i_1, :) ...: a product of matrices, one core per mode.

    cores[n] is (r_n, D_n, r_{n+1}) with r_0 = r_N = 1. The rank is that of the N - 1 bonds between cores.

    Example
    -------
    >>> [tuple(core.shape) for core in TensorTrain.from_weight(torch.randn(8, 4, 3, 3)).cores]
    [(1, 8, 8), (8, 4, 9), (9, 3, 3), (3, 3, 1)]
    """

    def __init__(self, cores: Sequence[Tensor]) -> None:
        super().__init__()
        self.cores = nn.ParameterList([nn.Parameter(core) for core in cores])
        self.shape = tuple(core.shape[1] for core in cores)

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Factorise a weight by successive SVDs; exact at full rank.

        Raises
        ------
        InputError
            If the rank is no rank of the bonds (see `resolve_rank`).
        """
        shape = weight.shape
        full = [min(prod(shape[:bond]), prod(shape[bond:])) for bond in range(1, len(shape))]
        bonds = resolve_rank(rank, full)
        if initialisation == "identity":
            expect_full(bonds, full)
        cores, rest, left = [], weight.detach().double(), 1
        for size, bond in zip(shape, bonds, strict=False):
            matrix = rest.reshape(left * size, -1)
            u, s, vt = split(matrix, min(bond, *matrix.shape), initialisation)
            cores.append(u.view(left, size, -1))
            rest, left = s[:, None] * vt, s.numel()
        cores.append(rest.view(left, shape[-1], 1))
        return cls([core.to(weight.dtype) for core in cores])

    def reconstruct(self) -> Tensor:
        first, *others = (working(core) for core in self.cores)
        product = first.flatten(0, 1)
        for core in others:
            product = matmul(product, core.flatten(1)).view(-1, core.shape[2])
        return product.view(self.shape)

    def factor_ranks(self) -> dict[str, int]:
        """Of a core the larger of its two bonds; the largest core carries W."""
        cores = dict(self.named_parameters())
        return {name: max(cores[name].shape[0], cores[name].shape[2]) for name in super().factor_ranks()}

    def orthonormal(self) -> dict[str, Tensor]:
        *cores, _ = self.cores  # the last one carries W's scale
        return {f"cores.{n}": core.flatten(0, 1) for n, core in enumerate(cores)}
