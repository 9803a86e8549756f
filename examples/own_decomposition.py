"""A decomposition of one's own: W = V exp(g), a gate g for each filter.

bitfactor --import examples/own_decomposition.py train digits --latent gated --out runs/gated
"""

from typing import Self

from torch import Tensor, nn

from bitfactor.decompositions import Initialisation, Latent, Rank, register, working


class Gated(Latent):
    """V has the weight's shape, g is (O,); sign(W) = sign(V), and g sets how fast each filter may change."""

    def __init__(self, v: Tensor) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(v), nn.Parameter(v.new_zeros(len(v)))
        self.shape = tuple(v.shape)

    @classmethod
    def from_weight(
        cls, weight: Tensor, rank: Rank = None, initialisation: Initialisation = "factorised"
    ) -> Self:
        """Start from a weight (O, ...), exactly."""
        return cls(weight.detach().clone())

    def reconstruct(self) -> Tensor:
        v, g = working(self.v), working(self.g)  # float32, where the model is in half precision
        return v * g.exp().view(-1, *(1,) * (v.dim() - 1))


register("gated", Gated.from_weight)
