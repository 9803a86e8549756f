"""BNext: binary convolutions that a squeeze-and-excitation of input and output gates.

N. Guo et al., "Join the high accuracy club on ImageNet with a binary neural network ticket", arXiv
2211.12933. The authors' code, `hpi-xnor/BNext`, has the names of parameters used here.
"""

import re
from itertools import pairwise

import torch
from torch import Tensor, nn

from bitfactor.common.arrays import expect_sizes
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.models.pretrained import with_scale
from bitfactor.models.reactnet import MOBILE_WIDTHS, Stem
from bitfactor.models.resnet import Excitation
from bitfactor.nn import PReLU, Shift


class Processor(nn.Module):
    """shift, binary conv, BN, PReLU, times the gate of a mix of input and output, BN, + shortcut.

    With `multiplies` the shortcut is the input behind a PReLU, which also multiplies what is added to it.
    (N, C, H, W) -> (N, C, H / stride, W / stride).
    """

    def __init__(self, channels: int, kernel: int, stride: int = 1, *, multiplies: bool = False) -> None:
        super().__init__()
        self.move = Shift(channels)
        self.binary_conv = nn.Conv2d(channels, channels, kernel, stride, kernel // 2, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.activation2 = PReLU(channels)
        self.activation1 = PReLU(channels) if multiplies else None
        self.pooling = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.se = Excitation(channels, channels)
        self.scale = nn.Parameter(torch.full((1, channels, 1, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation2(self.norm1(self.binary_conv(self.move(x))))
        scale, pooled = self.scale.clamp(0, 1), self.pooling(x)
        y = self.se(scale * pooled + (1 - scale) * y) * y
        if self.activation1 is None:
            return self.norm2(y) + pooled  # type: ignore[no-any-return]
        shortcut = self.pooling(self.activation1(x))
        return self.norm2(y * shortcut) + shortcut  # type: ignore[no-any-return]


class BNextBlock(nn.Module):
    """A 3x3 unit, then one of 1x1, or two side by side where the channels double."""

    def __init__(self, in_channels: int, channels: int, stride: int, *, multiplies: bool) -> None:
        super().__init__()
        self.Attention = Processor(in_channels, 3, stride, multiplies=multiplies)
        if in_channels == channels:
            self.FFN = Processor(in_channels, 1)
        else:
            self.FFN_1, self.FFN_2 = Processor(in_channels, 1), Processor(in_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.Attention(x)
        if hasattr(self, "FFN"):
            return self.FFN(x)  # type: ignore[no-any-return]
        return torch.cat([self.FFN_1(x), self.FFN_2(x)], 1)


class BNext(nn.Module):
    """A stem, blocks, a PReLU, global average pooling and a linear head; see `bnext_tiny`."""

    @checked
    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        expect_sizes(num_classes=num_classes)
        self.feature = nn.ModuleList([Stem(MOBILE_WIDTHS[0])])
        for i, (before, width) in enumerate(pairwise(MOBILE_WIDTHS), start=1):
            stride = 2 if before < width and i > 1 else 1
            self.feature.append(BNextBlock(before, width, stride, multiplies=i % 2 == 0))
        self.prelu = PReLU(MOBILE_WIDTHS[-1])
        self.fc = nn.Linear(MOBILE_WIDTHS[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.feature:
            x = block(x)
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(self.prelu(x), 1), 1))  # type: ignore[no-any-return]

    def keep_real(self) -> list[str]:
        """Return what `binarize_` leaves real beside stem and head: the gates."""
        return [name for name, module in self.named_modules() if isinstance(module, Excitation)]

    def from_published(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the authors' tensors as float weights; a weight that is not binary yet is refused.

        Their file also holds parameters that no forward reads.
        """
        for name, tensor in tensors.items():
            if name.endswith("binary_conv.temperature") and not bool((tensor < _BINARY).all()):
                raise InputError(
                    f"checkpoint, {name}",
                    expected=f"below {_BINARY}, where the weight is a sign",
                    found=f"{float(tensor.max()):.1e}",
                    fix="load the checkpoint of the last epoch",
                )
        own = self.state_dict().keys()
        used = {n: tensor for n, tensor in tensors.items() if n in own or not _UNREAD.search(n)}
        return {n: with_scale(t, 1.0) if _SIGNED.search(n) else t for n, t in used.items()}


_BINARY = 1e-7
_SIGNED = re.compile(r"binary_conv\.weight$")
_UNREAD = re.compile(r"\.temperature$|\.activation1\.weight$|^feature\.0\.prelu\.weight$")


def bnext_tiny(num_classes: int = 1000) -> BNext:
    """Build BNext-T: 0.077 G operations of 64 binary products or one real, 72.4 % on ImageNet.

    `binarize_(model, latent="none", scale="analytic")` runs the authors' weights, which have no scale.
    """
    return BNext(num_classes)
