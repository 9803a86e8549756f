"""A learned shift per channel: in front of a sign it is ReActNet's RSign, around a PReLU its RPReLU."""

import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError


class Shift(nn.Module):
    """x + b, with one learned b per channel of maps (N, C, H, W); b starts at 0.

    In front of a binary layer it moves the threshold of the sign. A file holds it as that threshold.

    Example
    -------
    >>> Shift(2)(torch.ones(1, 2, 1, 1)).shape
    torch.Size([1, 2, 1, 1])
    """

    @checked
    def __init__(self, channels: int) -> None:
        super().__init__()
        if not 1 <= channels < 1 << 31:
            raise InputError("channels", expected="1 to 2^31 - 1", found=str(channels), fix="change it")
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias

    def extra_repr(self) -> str:
        return str(self.bias.shape[1])
