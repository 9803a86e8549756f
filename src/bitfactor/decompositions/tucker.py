"""Layer-wise Tucker decomposition, and the tensor train."""

from collections.abc import Sequence
from math import prod
from typing import Self

from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions.latent import WITH_FACTORS, Initialisation, Latent, OfFactors
from bitfactor.decompositions.mixing import hosvd, split, tucker_weight
from bitfactor.decompositions.precision import matmul, working


class Tucker(OfFactors):
    """W = G x_0 U0 x_1 U1 x_2 U2 x_3 U3 (equation 7), one factor per mode of the weight.

    core is (R0, R1, ...), factors[n] is (D_n, R_n). At full rank the core has W's own shape and the factors
    are square, so every W can be reached. The decomposition changes the path of training, not the model.

    Example
    -------
    >>> latent = Tucker.from_weight(torch.randn(8, 4, 3, 3))
    >>> latent.core.shape, [tuple(factor.shape) for factor in latent.factors]
    (torch.Size([8, 4, 3, 3]), [(8, 8), (4, 4), (3, 3), (3, 3)])
    """

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

    def orthonormal(self) -> dict[str, Tensor]:
        return {f"factors.{mode}": factor for mode, factor in enumerate(self.factors)}


class TensorTrain(Latent):
    """W(i_0, i_1, ...) = G0(:, i_0, :) G1(:, i_1, :) ...: a product of matrices, one core per mode.

    cores[n] is (r_n, D_n, r_{n+1}) with r_0 = r_N = 1. The rank is that of the N - 1 bonds between cores.

    Example
    -------
    >>> [tuple(core.shape) for core in TensorTrain.from_weight(torch.randn(8, 4, 3, 3)).cores]
    [(1, 8, 8), (8, 4, 9), (9, 3, 3), (3, 3, 1)]
    """

    takes = (*WITH_FACTORS, "orthogonality")
    look = ("#56b4e9", "X")

    @checked
    def __init__(self, cores: Sequence[Tensor]) -> None:
        super().__init__()
        self.cores = nn.ParameterList([nn.Parameter(core) for core in cores])
        self.shape = tuple(core.shape[1] for core in cores)

    @classmethod
    def full_ranks(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(min(prod(shape[:bond]), prod(shape[bond:])) for bond in range(1, len(shape)))

    @classmethod
    def factorise(cls, W: Tensor, ranks: tuple[int, ...], initialisation: Initialisation) -> Self:
        cores, rest, left = [], W, 1
        for size, bond in zip(W.shape, ranks, strict=False):
            matrix = rest.reshape(left * size, -1)
            u, s, vt = split(matrix, min(bond, *matrix.shape), initialisation)
            cores.append(u.view(left, size, -1))
            rest, left = s[:, None] * vt, s.numel()
        cores.append(rest.view(left, W.shape[-1], 1))
        return cls(cores)

    def reconstruct(self) -> Tensor:
        first, *others = (working(core) for core in self.cores)
        product = first.flatten(0, 1)
        for core in others:
            product = matmul(product, core.flatten(1)).view(-1, core.shape[2])
        return product.view(self.shape)

    def factor_ranks(self) -> dict[str, int]:
        """Of a core the larger of its two bonds; the largest core carries W."""
        return {name: max(p.shape[0], p.shape[2]) for name, p in self._beside_the_largest().items()}

    def orthonormal(self) -> dict[str, Tensor]:
        *cores, _ = self.cores  # the last one carries W's scale
        return {f"cores.{n}": core.flatten(0, 1) for n, core in enumerate(cores)}
