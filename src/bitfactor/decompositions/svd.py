"""Layer-wise singular value decomposition."""

from typing import Self

from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.multilinear import split
from bitfactor.decompositions.precision import matmul, working
from bitfactor.decompositions.rank import resolve_rank


class SVD(Latent):
    """W = U diag(s) Vt, W taken as the matrix (O, C kh kw) (equation 5).

    u is (O, K), s (K,), vt (K, C kh kw), all learned, s of any sign; K = min(O, C kh kw) unless a rank is
    given. The three are free after the start: nothing keeps them orthonormal.

    Example
    -------
    >>> latent = SVD.from_weight(torch.randn(8, 4, 3, 3), rank=0.5)
    >>> latent.s.shape, latent().shape
    (torch.Size([4]), torch.Size([8, 4, 3, 3]))
    """

    def __init__(self, u: Tensor, s: Tensor, vt: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.u, self.s, self.vt = nn.Parameter(u), nn.Parameter(s), nn.Parameter(vt)
        self.shape = shape

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Factorise a weight (O, ...); exact at full rank.

        Raises
        ------
        InputError
            If the rank is not one number, or is no rank (see `resolve_rank`).
        """
        matrix = weight.detach().double().flatten(1)
        (k,) = resolve_rank(rank, (min(matrix.shape),))
        u, s, vt = (part.to(weight.dtype) for part in split(matrix, k, initialisation))
        return cls(u, s, vt, tuple(weight.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.u) * working(self.s), working(self.vt)).view(self.shape)

    def orthonormal(self) -> dict[str, Tensor]:
        return {"u": self.u, "vt": self.vt.mT}
