"""Signs of free weights that hardly ever flip, or that flip all the time, and what a step does about them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitfactor.common.errors import InputError
from bitfactor.decompositions import Dense
from bitfactor.nn import BinaryLayer, binary_layers
from bitfactor.training.optimization import Optimization
from bitfactor.training.recipe import OF_FLIPS, Recipe

_MEMORY = 0.999  # of the average over steps
_SILENT = 1e-4  # flips a step, below which a weight is silent: both as in OvSW's code


@dataclass
class Flips:
    """How often the sign of each element of a free weight flips, an average over the last thousand steps.

    OvSW (J. Xiang et al., arXiv 2407.05257, code `JingyangXiang/OvSW`). The gradient of a filter is scaled up
    to a norm of `gradient_floor` times the filter's, and weights that hardly flip decay by `silent_decay`
    more. Frozen oscillations (M. Nagel et al., arXiv 2203.11086). A weight that flips in more than
    `freeze_flips` of the steps keeps the sign that it had more often, for good.
    """

    layer: BinaryLayer
    weight: nn.Parameter
    rate: Tensor
    mean: Tensor
    sign: Tensor
    frozen: Tensor

    @classmethod
    def of(cls, layer: BinaryLayer) -> "Flips":
        """Return that of a layer with a free weight, at the start of a training."""
        assert isinstance(layer.latent, Dense)
        weight = layer.latent.weight
        sign, zeros = weight.detach() > 0, torch.zeros_like(weight, requires_grad=False)
        return cls(layer, weight, zeros, zeros + 0.5, sign, torch.zeros_like(sign))

    def before_step(self, plan: Optimization) -> None:
        """Change the gradient."""
        weight, gradient = self.weight.detach(), self.weight.grad
        if gradient is None or not self.layer.binary_weights:
            return
        if plan.gradient_floor:
            layer, groups = self.layer, self.layer.groups
            filters = layer.filters(gradient, groups)
            own = layer.filters(weight, groups).flatten(1).norm(dim=1).clamp_min(1e-3)
            norm = filters.flatten(1).norm(dim=1).clamp_min(1e-6)
            factor = (plan.gradient_floor * own / norm).clamp_min(1).view(-1, *(1,) * (filters.dim() - 1))
            gradient *= layer.of_filters(factor.expand_as(filters), groups)
        if plan.silent_decay:
            gradient.add_(weight * (self.rate < _SILENT), alpha=plan.silent_decay)

    def after_step(self, plan: Optimization) -> None:
        """Take in the new signs, and keep those that are frozen."""
        weight = self.weight.detach()
        if not self.layer.binary_weights:
            return
        if plan.freeze_flips:
            weight.copy_(torch.where(self.frozen, weight.abs() * (2 * self.sign - 1.0), weight))
        sign = weight > 0
        self.rate.lerp_((sign != self.sign).to(weight.dtype), 1 - _MEMORY)
        self.mean.lerp_(sign.to(weight.dtype), 1 - _MEMORY)
        self.sign = sign
        if plan.freeze_flips:
            restless = ~self.frozen & (self.rate > plan.freeze_flips)
            self.sign = torch.where(restless, self.mean > 0.5, sign)
            self.frozen |= restless
            weight.copy_(torch.where(restless, weight.abs() * (2 * self.sign - 1.0), weight))

    def state(self) -> list[Tensor]:
        """Return what a checkpoint holds of it."""
        return [self.rate, self.mean, self.sign, self.frozen]

    def load(self, state: list[Tensor]) -> None:
        """Go on from what `state` gave."""
        self.rate, self.mean, self.sign, self.frozen = (tensor.to(self.weight.device) for tensor in state)


def flips_of(network: nn.Module, recipe: Recipe) -> list[Flips]:
    """Return one for each binary layer where the recipe asks for it; InputError where it has no effect."""
    plan = recipe.optimization
    asked = [name for name in OF_FLIPS if getattr(plan, name)]
    if not asked:
        return []
    chosen = recipe.binarization
    other = [name for name in ("latent", "weight_transform") if set(chosen.every(name)) != {"none"}]
    layers = binary_layers(network).values()
    if recipe.real or other or not all(isinstance(layer.latent, Dense) for layer in layers):
        found = "--real" if recipe.real else f"{other[0]} {chosen.words(other[0])}"
        raise InputError(
            f"--{asked[0].replace('_', '-')}",
            expected="a binary network with free weights (latent none), signed as they are",
            found=found,
            fix="leave one of them out",
        )
    return [Flips.of(layer) for layer in layers]
