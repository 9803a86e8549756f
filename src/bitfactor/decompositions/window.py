"""A weight in a basis of its window that learns."""

from typing import Self

import torch
from torch import Tensor, nn

from bitfactor.decompositions.cosine import window_basis
from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.precision import matmul, working
from bitfactor.decompositions.rank import expect_full, resolve_rank


class Window(Latent):
    """W = A B^T, W taken as the matrix (O C, kh kw): a Tucker decomposition of the window, one mode, alone.

    coefficients, A, is (O C, R) and starts with columns of length one; basis, B, is (kh kw, R) and starts as
    cosines, which have been given those lengths. R = kh kw unless a rank is given. A length is the root of
    O C times the spread of its column, so that one learning rate moves W by more of its spread the more
    channels it has: wide layers want a lower one. Weights without a window, 1x1 or of linear layers, are
    free, but for a factor of one number. It is in no table of the paper (docs/results/evidence.md); B is made
    for `--factor-rate 1/rank`, and stays cosines at 0.

    Example
    -------
    >>> latent = Window.from_weight(torch.randn(8, 4, 3, 3))
    >>> latent.coefficients.shape, latent.basis.shape
    (torch.Size([32, 9]), torch.Size([9, 9]))
    """

    def __init__(self, coefficients: Tensor, basis: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.coefficients, self.basis = nn.Parameter(coefficients), nn.Parameter(basis)
        self.shape = shape

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Take the weight over, exact but for rounding at full rank; `identity` starts as taps, not cosines.

        Raises
        ------
        InputError
            If the rank is not one number, or is no rank (see `resolve_rank`), or below full with `identity`.
        """
        basis = window_basis(tuple(weight.shape[2:])).to(weight.device)
        (r,) = resolve_rank(rank, (len(basis),))
        if initialisation == "identity":
            expect_full((r,), (len(basis),))
            basis = torch.eye(len(basis), dtype=basis.dtype, device=basis.device)
        coefficients = weight.detach().double().reshape(-1, len(basis)) @ basis
        norms = coefficients.norm(dim=0)
        kept = norms.topk(r).indices.sort().values
        absent = norms <= torch.finfo(weight.dtype).eps * norms.max()
        lengths = torch.ones_like(norms) if len(basis) == 1 else norms.masked_fill(absent, 1)
        unit = coefficients.masked_fill(absent, 0)[:, kept] / lengths[kept]
        scaled = (basis * lengths)[:, kept]
        return cls(unit.to(weight.dtype), scaled.to(weight.dtype), tuple(weight.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.coefficients), working(self.basis).mT).view(self.shape)

    def matrices(self) -> dict[str, Tensor]:
        return {"basis": self.basis}

    def factor_ranks(self) -> dict[str, int]:
        return {"basis": self.basis.shape[1]}
