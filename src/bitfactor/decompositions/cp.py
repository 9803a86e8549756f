"""Canonical polyadic decomposition."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank, expect_full, resolve_rank
from bitfactor.decompositions.multilinear import hosvd
from bitfactor.decompositions.precision import matmul, working


class CP(Latent):
    """W = sum_r a_r o b_r o c_r o d_r: a sum of R outer products, one factor (D_n, R) per mode.

    It starts from the fibres of the HOSVD core along its longest mode: W is the sum of one outer product per
    fibre, and rank R keeps the R largest. The full rank, numel(W) / max(D_n), is exact and expensive:
    give a rank for wide layers.

    Example
    -------
    >>> CP.from_weight(torch.randn(8, 4, 3, 3), rank=16).factors[1].shape
    torch.Size([4, 16])
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(factor) for factor in factors])
        self.shape = tuple(factor.shape[0] for factor in factors)

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Factorise a weight; exact at full rank.

        Raises
        ------
        InputError
            If the rank is not one number, or is no rank (see `resolve_rank`).
        """
        full = weight.numel() // max(weight.shape)
        (terms,) = resolve_rank(rank, (full,))
        if initialisation == "identity":
            expect_full((terms,), (full,))
        core, bases = hosvd(weight.detach().double(), weight.shape, initialisation)
        factors = _fibres(core, bases, terms)
        return cls([factor.to(weight.dtype) for factor in factors])

    def reconstruct(self) -> Tensor:
        first, *others = (working(factor) for factor in self.factors)
        columns = others[0]
        for factor in others[1:]:
            columns = (columns[:, None] * factor).flatten(0, 1)  # Khatri-Rao product, (C kh kw, R)
        return matmul(first, columns.mT).view(self.shape)

    def factor_ranks(self) -> dict[str, int]:
        return dict.fromkeys(super().factor_ranks(), self.factors[0].shape[1])

    def matrices(self) -> dict[str, Tensor]:
        return {f"factors.{mode}": factor for mode, factor in enumerate(self.factors)}


def _fibres(core: Tensor, bases: Sequence[Tensor], terms: int) -> list[Tensor]:
    """Return the factors of the `terms` largest fibres of a core along its longest mode."""
    longest = max(range(core.dim()), key=lambda mode: core.shape[mode])
    others = [mode for mode in range(core.dim()) if mode != longest]
    fibres = core.movedim(longest, 0).flatten(1)
    kept = fibres.norm(dim=0).argsort(descending=True, stable=True)[:terms]
    places = torch.unravel_index(kept, [core.shape[mode] for mode in others])
    factors = {mode: bases[mode][:, place] for mode, place in zip(others, places, strict=True)}
    factors[longest] = bases[longest] @ fibres[:, kept]
    return [factors[mode] for mode in range(core.dim())]
