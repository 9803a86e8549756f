"""Bi-Real Net, a shortcut around each convolution, and ReActNet: learned shifts before each sign and PReLU.

Z. Liu et al., "Bi-Real Net: Enhancing the performance of 1-bit CNNs", ECCV 2018, arXiv 1808.00278, code
`liuzechun/Bi-Real-net`. Z. Liu et al., "ReActNet: Towards precise binary neural network with generalized
activation functions", ECCV 2020, arXiv 2003.03488, code `liuzechun/ReActNet`. Parameters have their names.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes, expect_stages
from bitfactor.common.checks import checked
from bitfactor.models.pretrained import flat_as_shaped
from bitfactor.models.resnet import shortcut
from bitfactor.nn import MaxPool2d, PReLU, Shift
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
        expect_sizes(num_classes=num_classes)
        expect_stages(blocks, WIDTHS)
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

    from_published = flat_as_shaped


def bireal18(num_classes: int = 1000) -> BiRealNet:
    """Build Bi-Real-18: 11.7 M parameters, 1.68 G binary and 0.14 G real products, 56.4 % on ImageNet.

    `binarize_(model, latent="none", scale="analytic", detach_alpha=True, activation_estimator="polynomial")`
    makes it the authors' network.
    """
    return BiRealNet((4, 4, 4, 4), num_classes)


def bireal34(num_classes: int = 1000) -> BiRealNet:
    """Build Bi-Real-34, 62.2 % on ImageNet; see `bireal18`."""
    return BiRealNet((6, 8, 12, 6), num_classes)


MOBILE_WIDTHS = (32, 64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024)


class ReActBlock(nn.Module):
    """shift, conv 3x3, BN, + shortcut, then shift, PReLU, shift: the block of ReActNet-18."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.move0 = Shift(in_channels)
        self.binary_conv = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.downsample = shortcut(in_channels, channels, stride)
        self.move1, self.prelu, self.move2 = Shift(channels), PReLU(channels), Shift(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = normalised(self.bn1, self.binary_conv(self.move0(x)), self.downsample(x))
        return self.move2(self.prelu(self.move1(y)))  # type: ignore[no-any-return]


class MobileBlock(nn.Module):
    """A binary 3x3 and a binary 1x1 convolution, each with its shortcut: the block of ReActNet-A.

    Twice the channels come from two 1x1 convolutions side by side; half the side from an average pooling in
    the shortcut.
    """

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.move11 = Shift(in_channels)
        self.binary_3x3 = nn.Conv2d(in_channels, in_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.pooling = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.move12, self.prelu1, self.move13 = Shift(in_channels), PReLU(in_channels), Shift(in_channels)
        self.move21 = Shift(in_channels)
        self.widens = channels != in_channels
        if self.widens:
            self.binary_pw_down1 = nn.Conv2d(in_channels, in_channels, 1, bias=False)
            self.binary_pw_down2 = nn.Conv2d(in_channels, in_channels, 1, bias=False)
            self.bn2_1, self.bn2_2 = nn.BatchNorm2d(in_channels), nn.BatchNorm2d(in_channels)
        else:
            self.binary_pw = nn.Conv2d(in_channels, channels, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(channels)
        self.move22, self.prelu2, self.move23 = Shift(channels), PReLU(channels), Shift(channels)

    def forward(self, x: Tensor) -> Tensor:
        x = normalised(self.bn1, self.binary_3x3(self.move11(x)), self.pooling(x))
        x = self.move13(self.prelu1(self.move12(x)))
        return self.move23(self.prelu2(self.move22(self._pointwise(x, self.move21(x)))))  # type: ignore[no-any-return]

    def _pointwise(self, x: Tensor, shifted: Tensor) -> Tensor:
        if not self.widens:
            return normalised(self.bn2, self.binary_pw(shifted), x)
        first = normalised(self.bn2_1, self.binary_pw_down1(shifted), x)
        second = normalised(self.bn2_2, self.binary_pw_down2(shifted), x)
        return torch.cat([first, second], 1)


class Stem(nn.Module):
    """conv 3x3/2, BN."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn1(self.conv1(x))  # type: ignore[no-any-return]


class ReActNetA(nn.Module):
    """MobileNet's widths in blocks of ReActNet; (N, 3, H, W) -> logits, H and W multiples of 32."""

    @checked
    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes)
        self.feature = nn.ModuleList([Stem(MOBILE_WIDTHS[0])])
        for before, width in pairwise(MOBILE_WIDTHS):
            self.feature.append(MobileBlock(before, width, 2 if before < width != MOBILE_WIDTHS[1] else 1))
        self.fc = nn.Linear(MOBILE_WIDTHS[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.feature:
            x = block(x)
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))  # type: ignore[no-any-return]

    from_published = flat_as_shaped


def reactnet18(num_classes: int = 1000) -> BiRealNet:
    """Build ReActNet on Bi-Real-18: 1.68 G binary and 0.14 G real products, 65.9 % on ImageNet.

    `binarize_(model, latent="none", scale="analytic", detach_alpha=True, activation_estimator="polynomial")`
    makes it the authors' network.
    """
    return BiRealNet((4, 4, 4, 4), num_classes, ReActBlock)


def reactnet_a(num_classes: int = 1000) -> ReActNetA:
    """Build ReActNet-A: 29.3 M parameters, 4.82 G binary and 0.012 G real products, 69.4 % on ImageNet.

    It turns binary as `reactnet18` does.
    """
    return ReActNetA(num_classes)
