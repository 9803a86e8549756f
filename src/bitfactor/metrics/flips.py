"""How many weights change their sign between two moments of training."""

import torch
from torch import Tensor, nn

from bitfactor.checks import checked
from bitfactor.nn import BinaryLayer


def binary_layers(model: nn.Module) -> dict[str, BinaryLayer]:
    """Return the binary layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BinaryLayer)}


class FlipRatio:
    """Fraction of each layer's weights whose sign differs from the call before.

    It holds one byte per weight.

    Example
    -------
    >>> flips = FlipRatio(model)
    >>> optimizer.step()
    >>> flips()["layer1.0.conv1"]
    0.0074
    """

    @checked
    def __init__(self, model: nn.Module) -> None:
        self._layers = binary_layers(model)
        self._signs = self._read()

    def __call__(self) -> dict[str, float]:
        """Return layer -> fraction of flipped signs since the last call, or since construction."""
        before, self._signs = self._signs, self._read()
        return {name: float((signs != before[name]).float().mean()) for name, signs in self._signs.items()}

    @torch.no_grad()
    def _read(self) -> dict[str, Tensor]:
        return {name: layer.latent() > 0 for name, layer in self._layers.items()}
