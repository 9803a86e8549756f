"""The CIFAR-10 networks of IR-Net and ReCU: ResNet-20, ResNet-18, and VGG-small.

H. Qin et al., "Forward and backward information retention for accurate binary neural networks", CVPR 2020,
arXiv 1909.10788, code `htqin/IR-Net`. Z. Xu et al., "ReCU: Reviving the dead weights in binary neural
networks", ICCV 2021, arXiv 2103.12369, code `z-hXu/ReCU`. Their names of parameters are used here.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.common.arrays import expect_sizes, expect_stages
from bitfactor.common.checks import checked, expect_that
from bitfactor.models.pretrained import with_scale
from bitfactor.nn import MaxPool2d
from bitfactor.nn.normalise import normalised
from bitfactor.nn.transform import standardised

Downsampling = Literal["stride", "pool"]
Span = Literal["conv", "block"]


def _from_published(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return an authors' tensors as float weights: IR-Net's scale is a power of 2, ReCU's is learned."""
    binary = [name for name in tensors if name.endswith("weight") and _is_binary(name, tensors[name])]
    learned = {name for name in tensors if name.endswith((".alpha", ".tau"))}
    made = {name: tensor for name, tensor in tensors.items() if name not in learned}
    for name in binary:
        weight = standardised(tensors[name])
        alpha = tensors.get(name.replace(".weight", ".alpha"))
        made[name] = with_scale(weight, _power_of_two(weight) if alpha is None else alpha)
    return made


def _is_binary(name: str, tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.shape[1] != _IMAGE_CHANNELS


_IMAGE_CHANNELS = 3


def _power_of_two(weight: Tensor) -> Tensor:
    return torch.exp2(torch.log2(weight.abs().flatten(1).mean(1)).round())


def _initialise(model: nn.Module) -> None:
    """Draw the weights as the authors do: normal, of the deviation sqrt(2 / fan in) (K. He et al. 2015).

    Standardised weights have the same signs at any scale, but the larger they are the less a step turns them.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)


class HardtanhBlock(nn.Module):
    """Twice conv 3x3, BN, hardtanh, with a shortcut before the hardtanh; new channels of it are zeros.

    (N, in_channels, H, W) -> (N, channels, H / stride, W / stride). `downsampling` takes every second pixel
    (IR-Net) or the mean of four (ReCU); a shortcut spans each convolution (ResNet-20) or both (ResNet-18).
    """

    def __init__(
        self, in_channels: int, channels: int, stride: int, downsampling: Downsampling, span: Span = "conv"
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.downsampling, self.added = stride, downsampling, channels - in_channels
        self.span = span

    def forward(self, x: Tensor) -> Tensor:
        if self.span == "block":
            y = normalised(self.bn1, self.conv1(x), clip=True)
            return normalised(self.bn2, self.conv2(y), self._shortcut(x), clip=True)
        y = normalised(self.bn1, self.conv1(x), self._shortcut(x), clip=True)
        return normalised(self.bn2, self.conv2(y), y, clip=True)

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            return x
        pooled = self.downsampling == "pool"
        x = F.avg_pool2d(x, 2, ceil_mode=True) if pooled else x[:, :, ::2, ::2]
        return F.pad(x, (0, 0, 0, 0, self.added // 2, self.added // 2))


class HardtanhResNet(nn.Module):
    """ResNet-20, or ResNet-18 with a `span` of blocks: (N, 3, 32, 32) -> logits (N, num_classes).

    `blocks` and `widths` say how many blocks a stage has, and how many channels.
    """

    @checked
    def __init__(
        self,
        num_classes: int,
        downsampling: Downsampling,
        span: Span = "conv",
        blocks: Sequence[int] = (3, 3, 3),
        widths: Sequence[int] = (16, 32, 64),
    ) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes)
        expect_stages(blocks, widths)
        even = all((wider - width) % 2 == 0 and wider >= width for width, wider in pairwise(widths))
        expect_that(even, "widths", expected="each an even number more than the last", found=str(widths))
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.span, self.stages = span, len(widths)
        for i, (before, width) in enumerate(pairwise((widths[0], *widths))):
            stage = [HardtanhBlock(before, width, 2 if i else 1, downsampling, span)]
            stage += [HardtanhBlock(width, width, 1, downsampling, span) for _ in range(blocks[i] - 1)]
            self.add_module(f"layer{i + 1}", nn.Sequential(*stage))
        self.bn2 = nn.BatchNorm1d(widths[-1])
        self.linear = nn.Linear(widths[-1], num_classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = normalised(self.bn1, self.conv1(x), clip=self.span == "conv")
        for i in range(self.stages):
            x = self.get_submodule(f"layer{i + 1}")(x)
        return self.linear(self.bn2(x.mean((2, 3))))  # type: ignore[no-any-return]

    from_published = _from_published


VGG_WIDTHS = (128, 128, 256, 256, 512, 512)


class VGGSmall(nn.Module):
    """Six convolutions, hardtanh and a linear head: (N, 3, 32, 32) -> logits (N, num_classes)."""

    @checked
    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes)
        for i, (before, width) in enumerate(pairwise((_IMAGE_CHANNELS, *VGG_WIDTHS))):
            self.add_module(f"conv{i}", nn.Conv2d(before, width, 3, padding=1, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(width))
        self.pooling = MaxPool2d(2)
        self.fc = nn.Linear(VGG_WIDTHS[-1] * 4 * 4, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        nn.init.normal_(self.fc.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(6):
            x = self.get_submodule(f"conv{i}")(x)
            x = self.pooling(x) if i % 2 else x
            x = normalised(getattr(self, f"bn{i}"), x, clip=True)
        return self.fc(torch.flatten(x, 1))  # type: ignore[no-any-return]

    from_published = _from_published


def irnet_resnet20(
    num_classes: int = 10, blocks: Sequence[int] = (3, 3, 3), widths: Sequence[int] = (16, 32, 64)
) -> HardtanhResNet:
    """Build IR-Net's ResNet-20 with a shortcut per convolution: 0.27 M parameters, 86.5 % on CIFAR-10.

    `binarize_(model, latent="none", scale="analytic")` runs the authors' weights. With other `blocks` and
    `widths` it is as deep and wide as a microcontroller allows.
    """
    return HardtanhResNet(num_classes, "stride", "conv", blocks, widths)


def recu_resnet20(num_classes: int = 10) -> HardtanhResNet:
    """Build ReCU's ResNet-20: 0.27 M parameters, 87.4 % on CIFAR-10.

    `binarize_(model, latent="none", scale="learned")` trains its alpha, and runs the authors' weights.
    """
    return HardtanhResNet(num_classes, "pool")


def recu_resnet18(num_classes: int = 10) -> HardtanhResNet:
    """Build ReCU's ResNet-18 with a shortcut per block: 11.0 M parameters, 92.8 % on CIFAR-10.

    It turns binary as `recu_resnet20` does.
    """
    return HardtanhResNet(num_classes, "pool", "block", (2, 2, 2, 2), (64, 128, 256, 512))


def vgg_small(num_classes: int = 10) -> VGGSmall:
    """Build VGG-small: 4.66 M parameters, on CIFAR-10 90.4 % by IR-Net and 92.2 % by ReCU."""
    return VGGSmall(num_classes)
