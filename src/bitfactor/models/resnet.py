"""Pre-activation ResNet in the form that binary networks use: BN, (sign,) conv, (alpha,) ReLU.

A model built here is real-valued. Made binary by `bitfactor.binarize_`, each 3x3 convolution signs its input
and weight. That is the block of figure 1 of the paper. Untouched, it is the full-precision baseline.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes, expect_stages
from bitfactor.common.checks import checked
from bitfactor.nn import MaxPool2d, PReLU, ReLU, Shift
from bitfactor.nn.normalise import normalised

Stem = Literal["imagenet", "cifar", "halving"]
Activation = Literal["relu", "prelu", "rprelu", "norm", "none"]
Shortcuts = Literal["block", "conv"]


class Excitation(nn.Module):
    """Global average pooling, two 1x1 convolutions and a sigmoid: a gate (N, channels, 1, 1) per channel.

    The convolutions have biases, those of `larq/zoo` have none.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        inner = max(in_channels // 8, 1)
        squeeze, excite = nn.Conv2d(in_channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), squeeze, ReLU(), excite)

    def forward(self, x: Tensor) -> Tensor:
        return self.se(x).sigmoid()  # type: ignore[no-any-return]


class BasicBlock(nn.Module):
    """BN, conv 3x3, activation, twice, then + shortcut (He et al. 2016, with the order of XNOR-Net).

    (N, in_channels, H, W) -> (N, channels, H / stride, W / stride). Where the shape changes, the shortcut is
    an average pooling, a 1x1 convolution and a BN. One that is to turn binary has the BN before the
    convolution, which needs inputs of both signs.

    With `shortcuts="conv"` a shortcut spans each convolution (Bi-Real Net, Liu et al. 2018). With `gates`
    what a convolution gives is multiplied by a gate of what it gets, before the sign (Real-to-Binary,
    Martinez et al. 2020).
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int,
        activation: Activation = "relu",
        shortcuts: Shortcuts = "block",
        *,
        binary_shortcuts: bool = False,
        gates: bool = False,
    ) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.act1 = activation_of(activation, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.act2 = activation_of(activation, channels)
        self.gate1 = Excitation(in_channels, channels) if gates else None
        self.gate2 = Excitation(channels, channels) if gates else None
        self.each = shortcuts == "conv"
        self.downsample = shortcut(in_channels, channels, stride, binary=binary_shortcuts)

    def forward(self, x: Tensor) -> Tensor:
        beside = self.downsample(x)
        y = self.act1(_gated(self.conv1, self.gate1, normalised(self.bn1, x)))
        if self.each:
            y = beside = y + beside
        y = self.act2(_gated(self.conv2, self.gate2, normalised(self.bn2, y)))
        return y + beside  # type: ignore[no-any-return]


def _gated(conv: nn.Module, gate: nn.Module | None, x: Tensor) -> Tensor:
    y = conv(x)
    return y if gate is None else y * gate(x)  # type: ignore[no-any-return]


def initialise_(model: nn.Module) -> None:
    """Draw the weights of convolutions anew: He-normal, by fan out."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def activation_of(name: Activation, channels: int) -> nn.Module:
    """Return the activation of this name for maps of so many channels."""
    made: dict[Activation, Callable[[], nn.Module]] = {
        "relu": ReLU,
        "prelu": lambda: PReLU(channels),
        "rprelu": lambda: nn.Sequential(Shift(channels), PReLU(channels), Shift(channels)),
        "norm": lambda: nn.BatchNorm2d(channels),
        "none": nn.Identity,
    }
    return made[name]()


def shortcut(in_channels: int, channels: int, stride: int, *, binary: bool = False) -> nn.Module:
    """Return the identity, or an average pooling, a 1x1 convolution and a BN where the shape changes."""
    if stride == 1 and in_channels == channels:
        return nn.Identity()
    # At odd sides the convolution rounds up, and so does the pooling.
    pool = nn.AvgPool2d(stride, stride, ceil_mode=True) if stride > 1 else nn.Identity()
    conv = nn.Conv2d(in_channels, channels, 1, bias=False)
    if binary:
        return _Normalising(pool, nn.BatchNorm2d(in_channels), conv)
    return _Normalising(pool, conv, nn.BatchNorm2d(channels))


class _Normalising(nn.Sequential):
    """Modules one after the other, whose BatchNorms train as `normalised` does."""

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = normalised(module, x) if isinstance(module, nn.BatchNorm2d) else module(x)
        return x


# kernel size, stride, padding
_STEMS: dict[Stem, tuple[int, int, int]] = {"imagenet": (7, 2, 3), "cifar": (3, 1, 1), "halving": (3, 2, 1)}


class ResNet(nn.Module):
    """A stem, stages of `BasicBlock`, global average pooling and a linear head.

    Parameters
    ----------
    blocks
        Blocks per stage; every stage but the first halves the map.
    widths
        Channels per stage.
    stem
        `imagenet`: conv 7x7/2, BN, ReLU, max-pool 3x3/2. `cifar`: conv 3x3, BN. `halving`: conv 3x3/2, BN.
    activation
        After each convolution of a block; `prelu` has a slope per channel, and `rprelu` a shift before and
        after it, too (ReActNet, arXiv 2003.03488). `norm` is a BatchNorm, which sums of signs without a scale
        need (BNN).
    shortcuts
        One around each block, or one around each convolution.
    binary_shortcuts
        Let the 1x1 convolutions of shortcuts turn binary too.
    gates
        Scale each convolution of a block by a gate of its inputs (Real-to-Binary).

    Example
    -------
    >>> model = ResNet(blocks=(1, 1), widths=(32, 64), num_classes=10, in_channels=1, stem="cifar")
    >>> model(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    @checked
    def __init__(
        self,
        blocks: Sequence[int],
        widths: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        stem: Stem = "imagenet",
        activation: Activation = "relu",
        shortcuts: Shortcuts = "block",
        *,
        binary_shortcuts: bool = False,
        gates: bool = False,
    ) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes, in_channels=in_channels)
        expect_stages(blocks, widths)
        large, (kernel, stride, padding) = stem == "imagenet", _STEMS[stem]
        self.binary_shortcuts = binary_shortcuts
        self.conv1 = nn.Conv2d(in_channels, widths[0], kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = ReLU() if large else nn.Identity()
        self.maxpool = MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.stages = len(blocks)
        block = partial(
            BasicBlock,
            activation=activation,
            shortcuts=shortcuts,
            binary_shortcuts=binary_shortcuts,
            gates=gates,
        )
        channels = widths[0]
        for i, (depth, width) in enumerate(zip(blocks, widths, strict=True), start=1):
            stage = nn.Sequential()
            for stride in [1 if i == 1 else 2] + [1] * (depth - 1):
                stage.append(block(channels, width, stride))
                channels = width
            self.add_module(f"layer{i}", stage)
        self.fc = nn.Linear(channels, num_classes)
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> logits (N, num_classes)."""
        x = self.maxpool(self.relu(normalised(self.bn1, self.conv1(x))))
        for i in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{i}")(x)
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))  # type: ignore[no-any-return]

    def keep_real(self) -> list[str]:
        """Return what `binarize_` leaves real beside stem and head: the 1x1 shortcuts, and gates."""
        return [
            name
            for name, module in self.named_modules()
            if isinstance(module, Excitation)
            or (not self.binary_shortcuts and isinstance(module, nn.Conv2d) and "downsample" in name)
        ]

    def holistic_groups(self) -> dict[str, list[str]]:
        """Return the groups of the paper: of each stage that opens with a strided convolution, the others.

        For ResNet-18: three groups of three, stages 2 to 4. What stands in no group is decomposed by itself.
        """
        return {f"layer{i}": self._equal_convs(f"layer{i}") for i in range(2, self.stages + 1)}

    def _equal_convs(self, stage: str) -> list[str]:
        blocks = len(self.get_submodule(stage))  # type: ignore[arg-type]
        names = [f"{stage}.{block}.conv{conv}" for block in range(blocks) for conv in (1, 2)]
        return names[1:]


def resnet18(num_classes: int = 1000, in_channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    """Build the ResNet-18 of the paper, real-valued: 11.69 M parameters, 1.81 GMAC at 224x224.

    Example
    -------
    >>> resnet18(num_classes=10, stem="cifar")(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    return ResNet((2, 2, 2, 2), (64, 128, 256, 512), num_classes, in_channels, stem)


def resnet34(num_classes: int = 1000, in_channels: int = 3, stem: Stem = "imagenet") -> ResNet:
    """Build ResNet-34 with the same blocks: stages of 3, 4, 6 and 3."""
    return ResNet((3, 4, 6, 3), (64, 128, 256, 512), num_classes, in_channels, stem)
