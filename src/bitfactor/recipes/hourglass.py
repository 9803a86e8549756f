"""The options of recipes that train an hourglass."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from torch import nn

from bitfactor.checks import check_fields
from bitfactor.models import hourglass
from bitfactor.models.hourglass import Block, Stem
from bitfactor.models.resnet import Activation, Shortcuts


@dataclass(frozen=True)
class HourglassOptions:
    """An hourglass's shape. The defaults are the paper's."""

    keypoints: Annotated[int, tyro.conf.Suppress]
    channels: int = 128
    """Channels of the blocks."""
    stacks: int = 1
    """Hourglasses one after the other, each of which learns heatmaps."""
    depth: int = 4
    """Levels of an hourglass, each at half the resolution of the one before."""
    block: Block = "basic"
    """Two 3x3 convolutions, or three with their outputs side by side (Bulat & Tzimiropoulos 2017)."""
    activation: Activation = "relu"
    """After each convolution of a block; norm: a BatchNorm, which signs without a scale need (BNN)."""
    shortcuts: Shortcuts = "block"
    """What a shortcut of a basic block spans: the block, or each convolution (Bi-Real Net)."""
    stem: Stem = "halving"
    """The way to a quarter of the side: through maps of half the side, or at once, which is faster."""
    blocks: int = 1
    """Blocks on each pathway of maps smaller than the heatmaps."""

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self) -> nn.Module:
        """Build the network, real-valued."""
        return hourglass(
            self.keypoints,
            self.channels,
            self.stacks,
            self.depth,
            self.block,
            self.activation,
            self.shortcuts,
            self.stem,
            self.blocks,
        )
