"""A free weight in the cosine basis of its window."""

import math
from functools import reduce
from typing import Self

import torch
from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.precision import matmul, working
from bitfactor.decompositions.rank import expect_no_rank


class Cosine(Latent):
    """W = A x_2 C_kh x_3 C_kw: of each window the coefficients A hold the mean, slopes and finer patterns.

    C_k (k, k) is the orthonormal DCT-II, C[i, j] = c_j cos(pi (i + 1/2) j / k), and never learns: A and W
    have one shape, and every W can be reached. Gradients of the taps of a window are much alike; Adam, which
    gives each element a step of its own, tells their mean from their differences only in a basis that does.
    Weights without a window, 1x1 or of linear layers, are as with latent "none". It is in no table of the
    paper: it is what a Tucker decomposition was found to gain by (docs/results/evidence.md).

    Example
    -------
    >>> latent = Cosine.from_weight(torch.ones(8, 4, 3, 3))
    >>> latent.coefficients[0, 0].detach().round(decimals=3)  # the mean alone
    tensor([[3., 0., 0.],
            [0., 0., 0.],
            [0., 0., 0.]])
    """

    basis: Tensor

    def __init__(self, coefficients: Tensor) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(coefficients)
        self.shape = tuple(coefficients.shape)
        self.register_buffer("basis", self._basis(), persistent=False)

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Take the weight over, exact but for rounding.

        Raises
        ------
        InputError
            If a rank is given.
        """
        expect_no_rank(rank, "cosine")
        basis = window_basis(tuple(weight.shape[2:])).to(weight.device)
        coefficients = weight.detach().double().reshape(-1, len(basis)) @ basis
        return cls(coefficients.to(weight.dtype).view(weight.shape))

    def reconstruct(self) -> Tensor:
        coefficients, taps = working(self.coefficients), len(self.basis)
        if taps == 1:
            return coefficients
        return matmul(coefficients.reshape(-1, taps), self.basis.mT).view(self.shape)

    def derive(self) -> None:
        self.basis = self._basis()  # of full precision, whatever the coefficients were cast to

    def _basis(self) -> Tensor:
        return window_basis(self.shape[2:]).to(working(self.coefficients))


def window_basis(kernel: tuple[int, ...]) -> Tensor:
    """Return the cosine basis of a window of these sizes, (taps, taps), taps in the order of a weight's."""
    return reduce(torch.kron, map(_cosines, kernel), torch.ones(1, 1, dtype=torch.float64))


def _cosines(size: int) -> Tensor:
    k = torch.arange(size, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * (k[:, None] + 0.5) * k)
    basis: Tensor = cosines / cosines.norm(dim=0)
    return basis
