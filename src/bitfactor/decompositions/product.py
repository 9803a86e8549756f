"""A plain product of two matrices: linear over-parametrisation without any structure."""

from typing import Self

from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.multilinear import split
from bitfactor.decompositions.precision import matmul, working
from bitfactor.decompositions.rank import resolve_rank


class Product(Latent):
    """W = A B, W taken as the matrix (O, C kh kw).

    left, A, is (O, K) and starts with orthonormal columns; right, B, is (K, C kh kw) and starts with the
    magnitudes. K = min(O, C kh kw) unless a rank is given. It is in no table of the paper: it tells what a
    decomposition gains by its structure from what any product of matrices gains.

    Example
    -------
    >>> latent = Product.from_weight(torch.randn(8, 4, 3, 3))
    >>> latent.left.shape, latent.right.shape
    (torch.Size([8, 8]), torch.Size([8, 36]))
    """

    def __init__(self, left: Tensor, right: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(left), nn.Parameter(right)
        self.shape = shape

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Factorise a weight (O, ...) by its singular vectors; exact at full rank.

        Raises
        ------
        InputError
            If the rank is not one number, or is no rank (see `resolve_rank`).
        """
        matrix = weight.detach().double().flatten(1)
        (k,) = resolve_rank(rank, (min(matrix.shape),))
        u, s, vt = split(matrix, k, initialisation)
        return cls(u.to(weight.dtype), (s[:, None] * vt).to(weight.dtype), tuple(weight.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.left), working(self.right)).view(self.shape)

    def orthonormal(self) -> dict[str, Tensor]:
        return {"left": self.left}

    def matrices(self) -> dict[str, Tensor]:
        return {"left": self.left, "right": self.right}
