"""What every latent is: a module that gives the real-valued weight W of one layer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Rank = int | float | Sequence[int | float] | None
Initialisation = Literal["factorised", "identity"]


class Latent(nn.Module, ABC):
    """Interface of the decompositions: `latent()` is W = ReconstructWeights(Theta_0, ..., Theta_N).

    A latent does not know that W will be signed. W is float32, or float64 where the parameters are, also
    inside autocast and whatever precision `torch.backends` allows for products.

    Attributes
    ----------
    shape
        W's shape, that of the float layer's weight: (O, C / groups, *kernel) or (O, F).
    """

    shape: tuple[int, ...]

    @abstractmethod
    def reconstruct(self) -> Tensor:
        """Return W from the parameters; called by `forward`, outside autocast."""

    def orthonormal(self) -> dict[str, Tensor]:
        """Return the factors whose columns start out orthonormal, by name, each (D, R) with R <= D."""
        return {}

    def matrices(self) -> dict[str, Tensor]:
        """Return the factors, by name, as matrices of which rank and condition can be measured."""
        return self.orthonormal()

    def _device(self) -> str:
        return next(self.parameters()).device.type

    def forward(self) -> Tensor:
        device = self._device()
        if not torch.is_autocast_enabled(device):
            return self.reconstruct()
        with torch.autocast(device, enabled=False):
            return self.reconstruct()
