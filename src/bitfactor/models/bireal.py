"""Bi-Real Net: a ResNet with a real-valued shortcut around each binary convolution.

Z. Liu et al., "Bi-Real Net: Enhancing the performance of 1-bit CNNs", ECCV 2018, arXiv 1808.00278. Their
PyTorch code, `liuzechun/Bi-Real-net`, has the names of parameters used here.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes
from bitfactor.common.checks import checked, expect_that
from bitfactor.models.pretrained import flat_as_shaped
from bitfactor.nn import MaxPool2d
from bitfactor.nn.normalise import normalised

WIDTHS = (64, 128, 256, 512)
Block = Callable[[int, int, int], nn.Module]


class BiRealBlock(nn.Module):
    """conv 3x3, BN, + shortcut: (N, in_channels, H, W) -> (N, channels, H / stride, W / stride)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.binary_conv = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.downsample = shortcut(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        return normalised(self.bn1, self.binary_conv(x), self.downsample(x))


def shortcut(in_channels: int, channels: int, stride: int) -> nn.Module:
    """Return the identity, or an average pooling, a 1x1 convolution and a BN where the shape changes."""
    if stride == 1 and in_channels == channels:
        return nn.Identity()
    pool = nn.AvgPool2d(2, stride, ceil_mode=True)  # as many outputs as the convolution at odd sides too
    return nn.Sequential(pool, nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))


class BiRealNet(nn.Module):
    """A stem without activation, four stages of blocks, global average pooling and a linear head.

    `blocks` counts convolutions per stage, twice the blocks of a ResNet.

    Example
    -------
    >>> BiRealNet((1, 1, 1, 1), num_classes=10)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """

    @checked
    def __init__(self, blocks: Sequence[int], num_classes: int = 1000, block: Block = BiRealBlock) -> None:
        super().__init__()
        expect_sizes(blocks=blocks, num_classes=num_classes)
        expect_that(len(blocks) == len(WIDTHS), "blocks", expected=f"{len(WIDTHS)}", found=blocks)
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.maxpool = MaxPool2d(3, 2, 1)
        before = (WIDTHS[0], *WIDTHS)
        for i, (depth, width) in enumerate(zip(blocks, WIDTHS, strict=True)):
            first = block(before[i], width, 2 if i else 1)
            stage = nn.Sequential(first, *(block(width, width, 1) for _ in range(depth - 1)))
            self.add_module(f"layer{i + 1}", stage)
        self.fc = nn.Linear(WIDTHS[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> logits (N, num_classes)."""
        x = self.maxpool(self.bn1(self.conv1(x)))
        for i in range(len(WIDTHS)):
            x = self.get_submodule(f"layer{i + 1}")(x)
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))  # type: ignore[no-any-return]

    def keep_real(self) -> list[str]:
        """Return what `binarize_` leaves real beside stem and head: the 1x1 shortcuts."""
        return [f"layer{i}.0.downsample" for i in (2, 3, 4)]

    def from_published(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of the authors' file by the names that this network has."""
        return flat_as_shaped(self, tensors)


def bireal18(num_classes: int = 1000) -> BiRealNet:
    """Build Bi-Real-18: 11.7 M parameters, 1.68 G binary and 0.14 G real products, 56.4 % on ImageNet.

    `binarize_(model, latent="none", scale="analytic", detach_alpha=True, activation_estimator="polynomial")`
    makes it the authors' network.
    """
    return BiRealNet((4, 4, 4, 4), num_classes)


def bireal34(num_classes: int = 1000) -> BiRealNet:
    """Build Bi-Real-34, 62.2 % on ImageNet; see `bireal18`."""
    return BiRealNet((6, 8, 12, 6), num_classes)
