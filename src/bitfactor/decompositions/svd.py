"""W as one matrix: free, as in BNN and XNOR-Net; a singular value decomposition; a product of two."""

from math import prod
from typing import Self

from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions.latent import WITH_FACTORS, Initialisation, Latent, Rank, expect_no_rank
from bitfactor.decompositions.mixing import split
from bitfactor.decompositions.precision import matmul, working


class _OfMatrix(Latent):
    """W is taken as the matrix (O, C kh kw), of one rank."""

    takes = (*WITH_FACTORS, "orthogonality")

    @classmethod
    def full_ranks(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (min(shape[0], prod(shape[1:])),)

    def factor_ranks(self) -> dict[str, int]:
        return {name: min(p.shape) for name, p in self._beside_the_largest().items()}


class SVD(_OfMatrix):
    """W = U diag(s) Vt, W taken as the matrix (O, C kh kw) (equation 5).

    u is (O, K), s (K,), vt (K, C kh kw), all learned, s of any sign. K = min(O, C kh kw) unless a rank is
    given. The three are free after the start: nothing keeps them orthonormal.

    Example
    -------
    >>> latent = SVD.from_weight(torch.randn(8, 4, 3, 3), rank=0.5)
    >>> latent.s.shape, latent().shape
    (torch.Size([4]), torch.Size([8, 4, 3, 3]))
    """

    look = ("#e69f00", "s")

    @checked
    def __init__(self, u: Tensor, s: Tensor, vt: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.u, self.s, self.vt = nn.Parameter(u), nn.Parameter(s), nn.Parameter(vt)
        self.shape = shape

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        return cls(*split(W.flatten(1), ranks[0], initialisation), tuple(W.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.u) * working(self.s), working(self.vt)).view(self.shape)

    def orthonormal(self) -> dict[str, Tensor]:
        return {"u": self.u, "vt": self.vt.mT}


class Dense(Latent):
    """W is a free parameter: the paper's baseline, "Decomposition: none".

    Example
    -------
    >>> Dense.from_weight(torch.randn(8, 4, 3, 3))().shape
    torch.Size([8, 4, 3, 3])
    """

    takes = ()
    look = ("#222222", "o")

    @checked
    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight
        self.shape = tuple(weight.shape)

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Take the weight over; a parameter stays the same object, so an optimizer that holds it goes on.

        Raises
        ------
        InputError
            If a rank is given.
        """
        expect_no_rank(rank, "none")
        return cls(weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.detach().clone()))

    def reconstruct(self) -> Tensor:
        return working(self.weight)


class Product(_OfMatrix):
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

    look = ("#009e73", "v")

    @checked
    def __init__(self, left: Tensor, right: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.left, self.right = nn.Parameter(left), nn.Parameter(right)
        self.shape = shape

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        u, s, vt = split(W.flatten(1), ranks[0], initialisation)
        return cls(u, s[:, None] * vt, tuple(W.shape))

    def reconstruct(self) -> Tensor:
        return matmul(working(self.left), working(self.right)).view(self.shape)

    def orthonormal(self) -> dict[str, Tensor]:
        return {"left": self.left}

    def matrices(self) -> dict[str, Tensor]:
        return {"left": self.left, "right": self.right}
