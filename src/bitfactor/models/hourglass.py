"""The hourglass for human pose, in the form that binary networks use.

Built here it is real-valued; `bitfactor.binarize_` turns its 3x3 convolutions binary, see `ResNet`. Its
hierarchical block has parallel scales in place of a bottleneck (Bulat & Tzimiropoulos 2017).
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.common.arrays import expect_sizes
from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.models.resnet import Activation, BasicBlock, Shortcuts, activation_of, initialise_
from bitfactor.nn import MaxPool2d, ReLU


class HierarchicalBlock(nn.Module):
    """Three 3x3 convolutions in a row, their outputs side by side, + shortcut.

    (N, in_channels, H, W) -> (N, channels, H, W). The convolutions give a half, a quarter and a quarter of
    the channels, so the block sees 3x3, 5x5 and 7x7 at once. Each is BN, conv, activation, the order of
    `BasicBlock`; where the number of channels changes, the shortcut is a 1x1 convolution and a BN.
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


Block = Literal["basic", "hierarchical"]
Stem = Literal["halving", "quartering"]

_CONVOLUTIONS = {"basic": ("conv1", "conv2"), "hierarchical": ("conv1", "conv2", "conv3")}
_PATHS = ("skip", "down", "up")


class Level(nn.Module):
    """One level of an hourglass: a skip at this resolution, and a way down to the next level and up again.

    (N, C, H, W) -> the same; H and W are halved inside.
    """

    def __init__(self, skip: nn.Module, down: nn.Module, inner: nn.Module, up: nn.Module) -> None:
        super().__init__()
        self.skip = skip
        self.pool = MaxPool2d(2)
        self.down = down
        self.inner = inner
        self.up = up

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.inner(self.down(self.pool(x))))
        return self.skip(x) + F.interpolate(y, scale_factor=2.0, mode="nearest")  # type: ignore[no-any-return]


class Stack(nn.Module):
    """One hourglass with its heatmaps: (N, C, H, W) -> features (N, C, H, W), maps (N, keypoints, H, W)."""

    def __init__(
        self, channels: int, depth: int, keypoints: int, block: Callable[[], nn.Module], blocks: int
    ) -> None:
        super().__init__()

        def path() -> nn.Module:
            return block() if blocks == 1 else nn.Sequential(*(block() for _ in range(blocks)))

        hourglass = path()
        for level in reversed(range(depth)):
            skip = path() if level else block()
            hourglass = Level(skip, path(), hourglass, path())
        self.hourglass = hourglass
        self.top = block()
        self.features = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), ReLU())
        self.maps = nn.Conv2d(channels, keypoints, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(self.top(self.hourglass(x)))
        return features, self.maps(features)


def _halving(channels: int, block: Callable[[int, int], nn.Module]) -> nn.Sequential:
    start = min(channels // 2, 64)
    return nn.Sequential(
        nn.Conv2d(3, start, 7, 2, 3, bias=False),
        nn.BatchNorm2d(start),
        ReLU(),
        block(start, 2 * start),
        MaxPool2d(2),
        block(2 * start, 2 * start),
        block(2 * start, channels),
    )


def _quartering(channels: int, block: Callable[[int, int], nn.Module]) -> nn.Sequential:
    start = channels // 4
    return nn.Sequential(
        nn.Conv2d(3, start, 4, 2, 1, bias=False),
        nn.BatchNorm2d(start),
        ReLU(),
        nn.Conv2d(start, channels, 4, 2, 1, bias=False),
        nn.BatchNorm2d(channels),
        ReLU(),
        block(channels, channels),
    )


class Hourglass(nn.Module):
    """A stem, then hourglasses one after the other on maps of a quarter of the image's side.

    (N, 3, H, W) -> heatmaps (N, keypoints, H / 4, W / 4). In eval mode they are those of the last hourglass,
    in training a tuple of all. H and W are multiples of 4 * 2^depth.

    By default it is the paper's, which has 4.99 M parameters here. The paper states 6.0 M and no count of its
    blocks, and no usual arrangement of them gives 6.0 M. The network that the paper compares with, 256
    channels of hierarchical blocks, has 6.24 M, 6.22 M of them in convolutions. The paper states 6.2 M.

    Parameters
    ----------
    channels
        Width of all blocks.
    depth
        Levels of each hourglass, every one at half the resolution of the one before.
    block
        `basic`: two 3x3 convolutions, the paper's. `hierarchical`: three, their outputs side by side.
    activation
        After each convolution of a block; `prelu` has a slope per channel.
    shortcuts
        Of basic blocks: one around each block, or one around each convolution.
    stem
        `halving`: conv 7x7/2 to half of `channels`, at 64 at most, BN, ReLU, a block that doubles them,
        max-pool 2x2, two blocks. `quartering`: conv 4x4/2 to a quarter of them, BN, ReLU, conv 4x4/2, BN,
        ReLU, a block. None is on maps of half the side, where a small network spends most of its time.
    blocks
        Blocks one after the other on each pathway of maps smaller than the heatmaps, where they cost little.

    Example
    -------
    >>> Hourglass(keypoints=14, channels=16, depth=2).eval()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 14, 16, 16])
    """

    @checked
    def __init__(
        self,
        keypoints: int = 16,
        channels: int = 128,
        stacks: int = 1,
        depth: int = 4,
        block: Block = "basic",
        activation: Activation = "relu",
        shortcuts: Shortcuts = "block",
        stem: Stem = "halving",
        blocks: int = 1,
    ) -> None:
        super().__init__()
        expect_sizes(keypoints=keypoints, channels=channels, stacks=stacks, depth=depth, blocks=blocks)
        _expect_blocks(channels, block, shortcuts)
        self.depth, self.block = depth, block

        def make(in_channels: int, channels: int) -> nn.Module:
            if block == "basic":
                return BasicBlock(in_channels, channels, 1, activation, shortcuts)
            return HierarchicalBlock(in_channels, channels, activation)

        self.stem = _halving(channels, make) if stem == "halving" else _quartering(channels, make)
        # Feeds features and maps of one hourglass, as 1x1 convolutions, into the next.
        self.merge_features = nn.ModuleList([nn.Conv2d(channels, channels, 1) for _ in range(stacks - 1)])
        self.merge_maps = nn.ModuleList([nn.Conv2d(keypoints, channels, 1) for _ in range(stacks - 1)])
        self.stacks = nn.ModuleList(
            [
                Stack(channels, depth, keypoints, lambda: make(channels, channels), blocks)
                for _ in range(stacks)
            ]
        )
        initialise_(self)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        self._expect_size(x)
        x = self.stem(x)
        heatmaps = []
        for i, stack in enumerate(self.stacks):
            features, maps = stack(x)
            heatmaps.append(maps)
            if i < len(self.merge_maps):
                x = x + self.merge_features[i](features) + self.merge_maps[i](maps)
        return tuple(heatmaps) if self.training else heatmaps[-1]

    def keep_real(self) -> list[str]:
        """Return the layers that `binarize_` leaves real: stem convolution, 1x1 convolutions."""
        return [
            name for name, m in self.named_modules() if isinstance(m, nn.Conv2d) and m.kernel_size != (3, 3)
        ]

    def holistic_groups(self) -> dict[str, Any]:
        """Return the preset of the paper: one grid (depth, pathway, convolution), one more mode for stacks.

        For one hourglass of depth 4 and 128 channels that is a tensor (4, 3, 2, 128, 128, 3, 3) of 24
        convolutions. For two it is (2, 4, 3, 2, 128, 128, 3, 3). The convolutions of a hierarchical block
        differ in shape, so that each of the three has a tensor of its own, without that mode. Of a pathway of
        several blocks the first is in the tensor.
        """
        names = _CONVOLUTIONS[self.block]
        if self.block == "basic":
            return {"hourglass": self._grid(lambda block: [f"{block}.{name}" for name in names])}
        return {f"hourglass.{name}": self._grid((f"{{}}.{name}").format) for name in names}

    def _grid(self, entry: Callable[[str], Any]) -> list[Any]:
        """Return `entry` of each block's name, nested by stack (if there are several), level and pathway."""
        stacks = [self._levels(f"stacks.{i}.hourglass", entry) for i in range(len(self.stacks))]
        return stacks if len(stacks) > 1 else stacks[0]

    def _levels(self, hourglass: str, entry: Callable[[str], Any]) -> list[list[Any]]:
        levels = [hourglass + ".inner" * level for level in range(self.depth)]
        return [[entry(self._first_block(f"{level}.{path}")) for path in _PATHS] for level in levels]

    def _first_block(self, path: str) -> str:
        return f"{path}.0" if isinstance(self.get_submodule(path), nn.Sequential) else path

    def _expect_size(self, x: Tensor) -> None:
        multiple = 4 * 2**self.depth
        if x.shape[-2] % multiple or x.shape[-1] % multiple:
            raise InputError(
                "input",
                expected=f"height and width that are multiples of {multiple}, 4 x 2 to the power of depth",
                found=f"{x.shape[-2]} x {x.shape[-1]}",
                fix="resize it, or build a network of less depth",
            )


hourglass = Hourglass  # as the other networks are called


def _expect_blocks(channels: int, block: str, shortcuts: str) -> None:
    expect_that(channels >= 4 and not channels % 4, "channels", expected="a multiple of 4", found=channels)
    if block != "basic" and shortcuts != "block":
        raise InputError(
            "shortcuts",
            expected=f"one around each {block} block",
            found=repr(shortcuts),
            fix="use basic blocks, or leave it out",
        )
