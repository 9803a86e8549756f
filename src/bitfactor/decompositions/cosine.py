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
    """W = core x_2 C_kh x_3 C_kw: the core holds, of each window, mean, slopes and finer patterns.

    C_k (k, k) is the orthonormal DCT-II, C[i, j] = c_j cos(pi (i + 1/2) j / k), and never learns: core and W
    have one shape, and every W can be reached. Gradients of the taps of a window are much alike, and Adam,
    which gives each number a step of its own, tells their mean from their differences in this basis alone.
    Weights without a window, 1x1 or of linear layers, are as with latent "none". It is in no table of the
    paper: it is what a Tucker decomposition was found to gain by (docs/results/evidence.md).

    Example
    -------
    >>> latent = Cosine.from_weight(torch.ones(8, 4, 3, 3))
    >>> latent.core[0, 0]  # the mean alone
    tensor([[3., 0., 0.], [0., 0., 0.], [0., 0., 0.]])
    """

    basis: Tensor

    def __init__(self, core: Tensor) -> None:
        super().__init__()
        self.core = nn.Parameter(core)
        self.shape = tuple(core.shape)
        self.register_buffer("basis", window_basis(self.shape[2:]).to(core), persistent=False)

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
        core = weight.detach().double().reshape(-1, len(basis)) @ basis
        return cls(core.to(weight.dtype).view(weight.shape))

    def reconstruct(self) -> Tensor:
        core = working(self.core)
        if len(self.basis) == 1:
            return core
        return matmul(core.reshape(-1, len(self.basis)), self.basis.mT.to(core.dtype)).view(self.shape)


def window_basis(kernel: tuple[int, ...]) -> Tensor:
    """Return the cosine basis of a window of these sizes, (taps, taps), taps in the order of a weight's."""
    return reduce(torch.kron, map(_cosines, kernel), torch.ones(1, 1, dtype=torch.float64))


def _cosines(size: int) -> Tensor:
    k = torch.arange(size, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * (k[:, None] + 0.5) * k)
    basis: Tensor = cosines / cosines.norm(dim=0)
    return basis
