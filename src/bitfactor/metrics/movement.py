"""What one step of the optimizer does to the weight of each layer, whatever its latent."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from bitfactor.checks import checked
from bitfactor.metrics.latents import binary_layers, factor_statistics, latent_statistics


@dataclass(frozen=True)
class Moved:
    """What a step did to a layer's weight W."""

    flipped: float
    """Fraction of its signs that changed."""
    change: float
    """Root mean square of W's change, over the learning rate. Adam moves a free weight by 1 or less; an entry
    of core x factors by up to the sum of the factors' ranks, and 1."""
    descent: float
    """Cosine of the angle between W's change and minus the gradient in W: 1 is steepest descent, 0 if there
    is no gradient."""
    gradient: float
    """Root mean square of the loss's gradient in W, as it comes through the sign."""
    spread: float
    """Standard deviation of W."""
    outside: float
    """Fraction of W outside [-1, 1], where the clipped estimator passes no gradient on."""
    condition: float
    """Largest over smallest singular value, of the factor where it is largest; 1 without factors."""


class Movement:
    """Watches the gradient in W of every binary layer until the one step that it is given.

    Where gradients are accumulated over parts of a batch, it is their sum; of several processes, this one's.

    Example
    -------
    >>> movement = Movement(model)
    >>> loss(model(inputs), target).backward()
    >>> movement(optimizer.step, learning_rate=1e-3)["layer1.0.conv1"].change
    0.62
    """

    @checked
    def __init__(self, model: nn.Module) -> None:
        self._model, self._layers = model, binary_layers(model)
        self._watched: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._hooks = [
            layer.latent.register_forward_hook(partial(self._watch, name))
            for name, layer in self._layers.items()
        ]

    def _watch(self, name: str, latent: nn.Module, inputs: object, weight: Tensor) -> None:
        # A held one comes again; the gradient in a leaf, of `once_for_all`, comes to the one it was made of.
        if weight.grad_fn is not None and self._watched.get(name) is not weight:
            self._watched[name] = weight
            weight.register_hook(partial(self._add, name))  # type: ignore[no-untyped-call]

    def _add(self, name: str, gradient: Tensor) -> None:
        before = self._gradients.get(name)
        self._gradients[name] = gradient.detach().clone() if before is None else before + gradient

    def __call__(self, update: Callable[[], None], learning_rate: float) -> dict[str, Moved]:
        """Call `update`, which changes the parameters, and return what that did to each layer."""
        for hook in self._hooks:
            hook.remove()
        before = self._weights()
        update()
        after, statistics, conditions = self._weights(), latent_statistics(self._model), self._conditions()
        found = {}
        for name, old in before.items():
            change = after[name] - old
            gradient = self._gradients.get(name, torch.zeros_like(change))
            found[name] = Moved(
                flipped=float(((after[name] > 0) != (old > 0)).float().mean()),
                change=_rms(change) / learning_rate if learning_rate else 0.0,
                descent=_cosine(change, -gradient),
                gradient=_rms(gradient),
                spread=statistics[name].std,
                outside=statistics[name].outside,
                condition=conditions.get(name, 1.0),
            )
        return found

    @torch.no_grad()
    def _weights(self) -> dict[str, Tensor]:
        return {name: layer.latent().detach().clone() for name, layer in self._layers.items()}

    def _conditions(self) -> dict[str, float]:
        found: dict[str, float] = {}
        factors = factor_statistics(self._model)
        for name, layer in self._layers.items():
            of_layer = [factors[f"{name}.{factor}"].condition for factor in layer.latent.matrices()]
            found[name] = max(of_layer, default=1.0)
        return found


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _cosine(a: Tensor, b: Tensor) -> float:
    lengths = float(a.norm() * b.norm())
    return float((a * b).sum()) / lengths if lengths else 0.0
