"""The hourglass for human pose, of basic blocks, in the form that binary networks use.

Built here it is real-valued; `bitfactor.binarize_` turns its 3x3 convolutions binary, see `ResNet`.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.models.resnet import BasicBlock


class Level(nn.Module):
    """One level of an hourglass: a skip at this resolution, and a way down to the next level and up again.

    (N, C, H, W) -> the same; H and W are halved inside. Each of the three pathways is one block.
    """

    def __init__(self, channels: int, inner: nn.Module) -> None:
        super().__init__()
        self.skip = BasicBlock(channels, channels, 1)
        self.down = BasicBlock(channels, channels, 1)
        self.inner = inner
        self.up = BasicBlock(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(self.inner(self.down(F.max_pool2d(x, 2))))
        return self.skip(x) + F.interpolate(y, scale_factor=2.0, mode="nearest")  # type: ignore[no-any-return]


class Stack(nn.Module):
    """One hourglass with its heatmaps: (N, C, H, W) -> features (N, C, H, W), maps (N, joints, H, W)."""

    def __init__(self, channels: int, depth: int, joints: int) -> None:
        super().__init__()
        hourglass: nn.Module = BasicBlock(channels, channels, 1)
        for _ in range(depth):
            hourglass = Level(channels, hourglass)
        self.hourglass = hourglass
        self.top = BasicBlock(channels, channels, 1)
        self.features = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU())
        self.maps = nn.Conv2d(channels, joints, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(self.top(self.hourglass(x)))
        return features, self.maps(features)


class Hourglass(nn.Module):
    """A stem that quarters the map, then hourglasses one after the other.

    (N, 3, H, W) -> heatmaps (N, joints, H / 4, W / 4): those of the last hourglass in eval mode, a tuple
    with those of every one in training. H and W are multiples of 4 * 2^depth.

    Parameters
    ----------
    channels
        Width of all blocks; the stem starts at half of it.
    depth
        Levels of each hourglass, every one at half the resolution of the one before.

    Example
    -------
    >>> Hourglass(joints=14, channels=16, depth=2).eval()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 14, 16, 16])
    """

    def __init__(self, joints: int = 16, stacks: int = 1, channels: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.depth = depth
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels // 2, 7, 2, 3, bias=False),
            nn.BatchNorm2d(channels // 2),
            nn.ReLU(),
            BasicBlock(channels // 2, channels, 1),
            nn.MaxPool2d(2, 2),
            BasicBlock(channels, channels, 1),
            BasicBlock(channels, channels, 1),
        )
        # Feeds features and maps of one hourglass, as 1x1 convolutions, into the next.
        self.merge_features = nn.ModuleList([nn.Conv2d(channels, channels, 1) for _ in range(stacks - 1)])
        self.merge_maps = nn.ModuleList([nn.Conv2d(joints, channels, 1) for _ in range(stacks - 1)])
        self.stacks = nn.ModuleList([Stack(channels, depth, joints) for _ in range(stacks)])
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
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

        For one hourglass of depth 4 and 128 channels: a tensor (4, 3, 2, 128, 128, 3, 3) of 24 convolutions.
        """
        stacks = [self._levels(f"stacks.{i}.hourglass") for i in range(len(self.stacks))]
        return {"hourglass": stacks if len(stacks) > 1 else stacks[0]}

    def _levels(self, level: str) -> list[list[list[str]]]:
        prefixes = [level + ".inner" * i for i in range(self.depth)]
        paths = ("skip", "down", "up")
        return [[[f"{p}.{path}.conv{c}" for c in (1, 2)] for path in paths] for p in prefixes]


def hourglass(joints: int = 16, stacks: int = 1) -> Hourglass:
    """Build the hourglass of the paper, real-valued: 128 channels, depth 4; one stack has 5.0 M weights."""
    return Hourglass(joints, stacks)
