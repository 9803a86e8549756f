"""No decomposition: the weight itself is the parameter, as in BNN and XNOR-Net."""

from typing import Self

from torch import Tensor, nn

from bitfactor.decompositions.latent import Initialisation, Latent, Rank
from bitfactor.decompositions.precision import working
from bitfactor.decompositions.rank import expect_no_rank


class Dense(Latent):
    """W is a free parameter: the paper's baseline, "Decomposition: none".

    Example
    -------
    >>> Dense.from_weight(torch.randn(8, 4, 3, 3))().shape
    torch.Size([8, 4, 3, 3])
    """

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
