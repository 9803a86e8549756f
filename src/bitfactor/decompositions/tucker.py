"""Layer-wise Tucker decomposition."""

from collections.abc import Sequence
from typing import Self

from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions.latent import WITH_FACTORS, Initialisation, Latent
from bitfactor.decompositions.multilinear import hosvd, tucker_weight
from bitfactor.decompositions.precision import working


class Tucker(Latent):
    """W = G x_0 U0 x_1 U1 x_2 U2 x_3 U3 (equation 7), one factor per mode of the weight.

    core is (R0, R1, ...), factors[n] is (D_n, R_n). At full rank the core has W's own shape and the factors
    are square, so every W can be reached: the decomposition changes the path of training, not the model.

    Example
    -------
    >>> latent = Tucker.from_weight(torch.randn(8, 4, 3, 3))
    >>> latent.core.shape, [tuple(factor.shape) for factor in latent.factors]
    (torch.Size([8, 4, 3, 3]), [(8, 8), (4, 4), (3, 3), (3, 3)])
    """

    takes = (*WITH_FACTORS, "orthogonality")
    look = ("#0072b2", "^")

    @checked
    def __init__(self, core: Tensor, factors: Sequence[Tensor]) -> None:
        super().__init__()
        self.core = nn.Parameter(core)
        self.factors = nn.ParameterList([nn.Parameter(factor) for factor in factors])
        self.shape = tuple(factor.shape[0] for factor in factors)

    @classmethod
    def full_ranks(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        return cls(*hosvd(W, ranks, initialisation))

    def reconstruct(self) -> Tensor:
        return tucker_weight(working(self.core), [working(factor) for factor in self.factors])

    def factor_ranks(self) -> dict[str, int]:
        return {f"factors.{mode}": factor.shape[1] for mode, factor in enumerate(self.factors)}

    def orthonormal(self) -> dict[str, Tensor]:
        return {f"factors.{mode}": factor for mode, factor in enumerate(self.factors)}
