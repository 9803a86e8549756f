"""A compact network of inverted residuals: what a user would quantise to int8 instead of going to one bit."""

from collections.abc import Sequence

from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes, expect_stages
from bitfactor.common.checks import checked


class InvertedResidual(nn.Module):
    """1x1 up, 3x3 depthwise, 1x1 down, and a shortcut where the shape stays (Sandler et al. 2018, figure 3).

    (N, in_channels, H, W) -> (N, channels, H / stride, W / stride).
    """

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.layers = nn.Sequential(
            *_convolution(in_channels, inner, 1),
            nn.ReLU(),
            *_convolution(inner, inner, 3, stride, groups=inner),
            nn.ReLU(),
            *_convolution(inner, channels, 1),
        )
        self.same = stride == 1 and in_channels == channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.same else y


class CompactNet(nn.Module):
    """A MobileNetV2 for images of 64 to 224 pixels: (N, in_channels, H, W) -> logits (N, num_classes).

    A 3x3 convolution of stride 2, stages of inverted residuals of which the first has stride 2, a 1x1
    convolution to four times the channels, the mean, and a linear layer.

    Raises
    ------
    InputError
        If a size is below 1, or `blocks` and `widths` have other lengths.

    Example
    -------
    >>> CompactNet(10)(torch.zeros(2, 3, 96, 96)).shape
    torch.Size([2, 10])
    """

    @checked
    def __init__(
        self,
        num_classes: int = 1000,
        blocks: Sequence[int] = (2, 3, 3),
        widths: Sequence[int] = (24, 48, 96),
        in_channels: int = 3,
        expansion: int = 4,
    ) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes, in_channels=in_channels, expansion=expansion)
        expect_stages(blocks, widths)
        first = max(widths[0] * 2 // 3, 1)
        self.stem = nn.Sequential(*_convolution(in_channels, first, 3, 2), nn.ReLU())
        stages: list[nn.Module] = []
        for count, (before, width) in zip(blocks, zip((first, *widths), widths, strict=False), strict=True):
            stages += [InvertedResidual(before, width, 2, expansion)]
            stages += [InvertedResidual(width, width, 1, expansion) for _ in range(count - 1)]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(*_convolution(widths[-1], 4 * widths[-1], 1), nn.ReLU())
        self.fc = nn.Linear(4 * widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.head(self.stages(self.stem(x))).mean((2, 3)))  # type: ignore[no-any-return]


def _convolution(
    in_channels: int, channels: int, side: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(in_channels, channels, side, stride, side // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(channels)
