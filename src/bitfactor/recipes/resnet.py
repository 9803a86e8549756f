"""The options of recipes that train a ResNet."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from torch import nn

from bitfactor.checks import check_fields
from bitfactor.errors import InputError
from bitfactor.models import ResNet
from bitfactor.models.resnet import Activation, Shortcuts, Stem


@dataclass(frozen=True)
class ResNetOptions:
    """A ResNet's shape. The defaults are ResNet-18 as in the paper."""

    num_classes: Annotated[int, tyro.conf.Suppress]
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    """Blocks per stage; 3 4 6 3 is ResNet-34."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Channels per stage."""
    in_channels: Annotated[int, tyro.conf.Suppress] = 3
    stem: Stem = "imagenet"
    """First layer: 7x7/2 and max-pool, 3x3, or 3x3/2."""
    activation: Activation = "relu"
    """After each convolution of a block; norm: a BatchNorm, which signs without a scale need (BNN)."""
    shortcuts: Shortcuts = "block"
    """What a shortcut spans: a block of two convolutions, or each convolution (Bi-Real Net)."""
    binary_shortcuts: bool = False
    """Let the 1x1 convolutions of shortcuts turn binary too."""

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.blocks, default=0) < 1:
            raise InputError(
                "--blocks",
                expected="numbers above 0, one per stage",
                found=" ".join(map(str, self.blocks)) or "none",
                fix="change them",
            )
        if len(self.blocks) != len(self.widths) or min(self.widths) < 1:
            raise InputError(
                "--widths",
                expected=f"{len(self.blocks)} numbers above 0, as many as --blocks",
                found=" ".join(map(str, self.widths)) or "none",
                fix="give both, one entry per stage",
            )

    def __call__(self) -> nn.Module:
        """Build the network, real-valued."""
        return ResNet(
            self.blocks,
            self.widths,
            self.num_classes,
            self.in_channels,
            self.stem,
            self.activation,
            self.shortcuts,
            binary_shortcuts=self.binary_shortcuts,
        )
