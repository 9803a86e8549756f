"""A scale of one's own: the root of the mean square of each filter, times a factor that learns.

bitfactor --import examples/own_scale.py train digits --scale rms_scale --out runs/rms
"""

import torch
from torch import Tensor, nn

from bitfactor.nn import Scale, register_scale


class RmsScale(Scale):
    """alpha = g rms(W), one g for each output channel."""

    def __init__(self, W: Tensor) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(len(W)).to(W))

    def alpha_of(self, W: Tensor) -> Tensor:
        return self.g * W.flatten(1).square().mean(1).sqrt()


register_scale("rms_scale", RmsScale)
