"""Estimators, a transform of weights and a scale of one's own.

bitfactor --import examples/own_estimators.py train digits --weight-transform halved --out runs/halved
bitfactor --import examples/own_estimators.py train digits --activation-estimator reste --out runs/reste
bitfactor --import examples/own_estimators.py train digits --scale rms_scale --out runs/rms
"""

import torch
from torch import Tensor, nn

from bitfactor.nn import Scale, register_estimator, register_scale, register_weight_transform

_POWER, _NEAR = 3.0, 0.1


def reste(x: Tensor) -> Tensor:
    """Slope of sign(x) abs(x)^(1 / o), o = 3: ReSTE (Wu et al., 2023), bounded near 0 and 0 beyond 1.5."""
    slope = x.abs().clamp_min(_NEAR) ** (1 / _POWER - 1) / _POWER
    return slope * (x.abs() <= 1.5)


def staircase(x: Tensor) -> Tensor:
    """Slope of a soft staircase: three smooth steps, at -0.5, 0 and 0.5, that add up to a sign."""
    steps = torch.stack([1 - torch.tanh(4 * (x - at)).square() for at in (-0.5, 0.0, 0.5)])
    return 4 / 3 * steps.sum(0)


class Threshold(nn.Module):
    """x - t, with one threshold t that a layer learns; clipped beyond -1 ... 1."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.threshold).clamp(-1, 1)


def halved(W: Tensor) -> Tensor:
    """Each filter minus its median, so that half of its signs are +1: SiMaN (Lin et al., 2022)."""
    flat = W.flatten(1)
    return (flat - flat.median(1, keepdim=True).values).view_as(W)


class RmsScale(Scale):
    """alpha = g rms(W): the root of the mean square of each filter, times a factor g that learns."""

    def __init__(self, W: Tensor) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(len(W)).to(W))

    def alpha_of(self, W: Tensor) -> Tensor:
        return self.g * W.flatten(1).square().mean(1).sqrt()


register_estimator("reste", slope=reste)
register_estimator("staircase", slope=staircase)
register_estimator("threshold", module=Threshold)
register_weight_transform("halved", lambda W: halved)
register_scale("rms_scale", RmsScale)
