"""The hierarchical block: parallel scales in place of a bottleneck (Bulat & Tzimiropoulos 2017)."""

import torch
from torch import Tensor, nn

from bitfactor.models.resnet import Activation, activation_of


class HierarchicalBlock(nn.Module):
    """Three 3x3 convolutions in a row, their outputs side by side, + shortcut.

    (N, in_channels, H, W) -> (N, channels, H, W). The convolutions give a half, a quarter and a quarter of
    the channels, so the block sees 3x3, 5x5 and 7x7 at once. Each is BN, conv, activation, the order of
    `BasicBlock`; where the number of channels changes, the shortcut is a 1x1 convolution and a BN.

    Example
    -------
    >>> HierarchicalBlock(8, 16)(torch.zeros(1, 8, 4, 4)).shape
    torch.Size([1, 16, 4, 4])
    """

    def __init__(self, in_channels: int, channels: int, activation: Activation = "relu") -> None:
        super().__init__()
        half, quarter = channels // 2, channels // 4
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, half, 3, padding=1, bias=False)
        self.act1 = activation_of(activation, half)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv2 = nn.Conv2d(half, quarter, 3, padding=1, bias=False)
        self.act2 = activation_of(activation, quarter)
        self.bn3 = nn.BatchNorm2d(quarter)
        self.conv3 = nn.Conv2d(quarter, quarter, 3, padding=1, bias=False)
        self.act3 = activation_of(activation, quarter)
        self.shortcut = (
            nn.Identity()
            if in_channels == channels
            else nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y1 = self.act1(self.conv1(self.bn1(x)))
        y2 = self.act2(self.conv2(self.bn2(y1)))
        y3 = self.act3(self.conv3(self.bn3(y2)))
        return torch.cat((y1, y2, y3), 1) + self.shortcut(x)  # type: ignore[no-any-return]
