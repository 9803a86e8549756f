"""QuickNet: binary 3x3 convolutions for fast inference, from larq.

T. Bannink et al., "Larq Compute Engine: Design, benchmark, and deploy state-of-the-art binarized neural
networks", MLSys 2021, arXiv 2011.09398; code in Keras, `larq/zoo`. Its files name tensors by a counter, so
they are read in their order.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes, expect_stages
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.models.pretrained import with_scale
from bitfactor.nn import MaxPool2d, ReLU

_KERAS_EPSILON = 1e-3


class QuickNetBlock(nn.Module):
    """binary conv 3x3, ReLU, BN, + shortcut, on maps (N, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.relu = ReLU()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.relu(self.conv(x))) + x  # type: ignore[no-any-return]


def _transition(in_channels: int, channels: int) -> nn.Sequential:
    """Return ReLU, max-pool 2x2/1, a fixed blur 3x3/2, conv 1x1, BN: the map halves, the channels change."""
    blur = nn.Conv2d(in_channels, in_channels, 3, 2, 1, groups=in_channels, bias=False)
    taps = torch.tensor([1.0, 2.0, 1.0]) / 4
    blur.weight = nn.Parameter(torch.outer(taps, taps).expand_as(blur.weight).clone(), requires_grad=False)
    conv = nn.Conv2d(in_channels, channels, 1, bias=False)
    return nn.Sequential(ReLU(), MaxPool2d(2, 1), blur, conv, nn.BatchNorm2d(channels))


def _stem(channels: int) -> nn.Sequential:
    """Return conv 3x3/2, BN, ReLU, depthwise 3x3/2, BN, conv 1x1, BN; padding is below and to the right."""
    quarter = channels // 4
    pad = nn.ZeroPad2d((0, 1, 0, 1))
    return nn.Sequential(
        pad,
        nn.Conv2d(3, quarter, 3, 2, bias=False),
        nn.BatchNorm2d(quarter, _KERAS_EPSILON, 0.01),
        ReLU(),
        pad,
        nn.Conv2d(quarter, quarter, 3, 2, groups=quarter, bias=False),
        nn.BatchNorm2d(quarter, _KERAS_EPSILON, 0.01, affine=False),
        nn.Conv2d(quarter, channels, 1, bias=False),
        nn.BatchNorm2d(channels, _KERAS_EPSILON, 0.01),
    )


class QuickNet(nn.Module):
    """(N, 3, H, W) -> logits (N, num_classes); H and W are multiples of 32."""

    @checked
    def __init__(self, blocks: Sequence[int], widths: Sequence[int], num_classes: int = 1000) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes)
        expect_stages(blocks, widths)
        self.stem = _stem(widths[0])
        self.stages = nn.Sequential()
        for i, (depth, width) in enumerate(zip(blocks, widths, strict=True)):
            if i:
                self.stages.append(_transition(widths[i - 1], width))
            self.stages.append(nn.Sequential(*(QuickNetBlock(width) for _ in range(depth))))
        self.relu = ReLU()
        self.fc = nn.Linear(widths[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stages(self.stem(x)))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))  # type: ignore[no-any-return]

    def keep_real(self) -> list[str]:
        """Return what `binarize_` leaves real beside the head: the stem and the transitions."""
        odd = range(1, len(self.stages), 2)
        return ["stem", *(f"stages.{i}" for i in odd)]

    def from_published(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of Keras, in the order of layers, by the names that this network has.

        Names that are this network's own pass through.
        """
        if not all("/" in name for name in tensors):
            return tensors
        own = [name for name in self.state_dict() if not name.endswith("num_batches_tracked")]
        if len(own) != len(tensors):
            raise InputError(
                "checkpoint",
                expected=f"{len(own)} tensors",
                found=str(len(tensors)),
                fix="build the QuickNet of the file's size, with its head",
            )
        signed = {f"{name}.conv.weight" for name, m in self.named_modules() if isinstance(m, QuickNetBlock)}
        made = zip(own, (_as_in_torch(name, tensor) for name, tensor in tensors.items()), strict=True)
        return {name: with_scale(tensor, 1.0) if name in signed else tensor for name, tensor in made}


def _as_in_torch(name: str, tensor: Tensor) -> Tensor:
    """Return a kernel (H, W, C, O) as (O, C, H, W), one of depth (H, W, C, 1) as (C, 1, H, W)."""
    if tensor.dim() == 4:
        return tensor.permute((2, 3, 0, 1) if "depthwise" in name.rpartition("/")[2] else (3, 2, 0, 1))
    return tensor.T if tensor.dim() == 2 else tensor


def quicknet_small(num_classes: int = 1000) -> QuickNet:
    """Build QuickNetSmall: 12.7 M parameters, 59.4 % on ImageNet; see `quicknet`."""
    return QuickNet((4, 4, 4, 4), (32, 64, 256, 512), num_classes)


def quicknet(num_classes: int = 1000) -> QuickNet:
    """Build QuickNet: 13.2 M parameters, 63.3 % on ImageNet.

    `binarize_(model, latent="none", scale="none", padding_value=1)` makes it larq's network.
    """
    return QuickNet((4, 4, 4, 4), (64, 128, 256, 512), num_classes)


def quicknet_large(num_classes: int = 1000) -> QuickNet:
    """Build QuickNetLarge: 23.3 M parameters, 66.9 % on ImageNet; see `quicknet`."""
    return QuickNet((6, 8, 12, 6), (64, 128, 256, 512), num_classes)
