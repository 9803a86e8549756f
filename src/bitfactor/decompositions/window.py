"""A weight in a basis of its window: of cosines, or one that learns."""

import math
from functools import reduce
from math import prod
from typing import Self

import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions.latent import WITH_FACTORS, Initialisation, Latent
from bitfactor.decompositions.precision import matmul, working


class Cosine(Latent):
    """W = A x_2 C_kh x_3 C_kw: of each window the coefficients A hold the mean, slopes and finer patterns.

    C_k (k, k) is the orthonormal DCT-II, C[i, j] = c_j cos(pi (i + 1/2) j / k), and never learns. A and W
    have one shape, and every W can be reached. SGD takes the same steps as with latent "none"; Adam, which
    gives each element a step of its own, takes those of another basis. Weights without a window, 1x1 or of
    linear layers, are as with latent "none". It is in no table of the paper (docs/results/evidence.md).

    Example
    -------
    >>> latent = Cosine.from_weight(torch.ones(8, 4, 3, 3))
    >>> latent.coefficients[0, 0].detach().round(decimals=3)  # the mean alone
    tensor([[3., 0., 0.],
            [0., 0., 0.],
            [0., 0., 0.]])
    """

    takes = ()
    look = ("#7b3294", "h")

    basis: Tensor

    @checked
    def __init__(self, coefficients: Tensor) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(coefficients)
        self.shape = tuple(coefficients.shape)
        self.register_buffer("basis", self._basis(), persistent=False)

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        basis = window_basis(tuple(W.shape[2:])).to(W.device)
        return cls((W.reshape(-1, len(basis)) @ basis).view(W.shape))

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


class Window(Latent):
    """W = A B^T, W taken as the matrix (O C, kh kw): a Tucker decomposition of the window, one mode, alone.

    The coefficients, A, are (O C, R) and start with columns of length one. The basis, B, is (kh kw, R) and
    starts as cosines of those lengths. R = kh kw unless a rank is given. A length is the root of O C times
    the spread of its column. So one learning rate moves W by more of its spread the more channels it has, and
    wide layers want a lower one. Weights without a window, 1x1 or of linear layers, are free, except for a
    factor of one number. It is in no table of the paper. B is made for `--factor-rate 1/rank`, and stays
    cosines at 0. Then Adam steps in another basis, see `Cosine`, at a rate for each layer. Whether a B that
    learns gains more is not certain (docs/results/evidence.md). With the initialisation `identity`, B starts
    as taps.

    Example
    -------
    >>> latent = Window.from_weight(torch.randn(8, 4, 3, 3))
    >>> latent.coefficients.shape, latent.basis.shape
    (torch.Size([32, 9]), torch.Size([9, 9]))
    """

    takes = WITH_FACTORS
    look = ("#b2182b", "p")

    @checked
    def __init__(self, coefficients: Tensor, basis: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.coefficients, self.basis = nn.Parameter(coefficients), nn.Parameter(basis)
        self.shape = shape

    @classmethod
    def full_ranks(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (prod(shape[2:]),)

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        basis = window_basis(tuple(W.shape[2:])).to(W.device)
        if initialisation == "identity":
            basis = torch.eye(len(basis), dtype=basis.dtype, device=basis.device)
        coefficients = W.reshape(-1, len(basis)) @ basis
        norms = coefficients.norm(dim=0)
        kept = norms.topk(ranks[0]).indices.sort().values
        absent = norms <= torch.finfo(torch.float32).eps * norms.max()
        lengths = torch.ones_like(norms) if len(basis) == 1 else norms.masked_fill(absent, 1)
        unit = coefficients.masked_fill(absent, 0)[:, kept] / lengths[kept]
        scaled = (basis * lengths)[:, kept]
        return cls(unit, scaled, tuple(W.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.coefficients), working(self.basis).mT).view(self.shape)

    def matrices(self) -> dict[str, Tensor]:
        return {"basis": self.basis}

    def factor_ranks(self) -> dict[str, int]:
        return {"basis": self.basis.shape[1]}
