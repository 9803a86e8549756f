"""Binary convolutions in one, two and three dimensions."""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.decompositions import Latent
from bitfactor.nn.layer import BinaryLayer, PaddingValue
from bitfactor.nn.scale import Scale

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class BinaryConv(BinaryLayer):
    """A binary convolution of any dimension, the interface of the three; its geometry is a float layer's.

    Padding comes after the sign, so a padded tap is `padding_value`: with 0 a third value beside -1 and +1,
    which adds nothing to the sum.
    """

    dimensions: int

    def __init__(
        self,
        latent: Latent,
        scale: Scale | None = None,
        *,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: nn.Parameter | None = None,
        padding_value: PaddingValue = 0,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(latent, scale, bias)
        self.out_channels, per_group, *kernel = latent.shape
        self.in_channels, self.kernel_size, self.groups = per_group * groups, tuple(kernel), groups
        self.stride, self.dilation = self._each(stride), self._each(dilation)
        self.padding = padding if isinstance(padding, str) else self._each(padding)
        self.padding_value, self.padding_mode = padding_value, padding_mode

    def _each(self, value: int | Sequence[int]) -> tuple[int, ...]:
        return (value,) * self.dimensions if isinstance(value, int) else tuple(value)

    def padding_of_sides(self) -> list[int]:
        """Return the padding before and after, last dimension first, as torch.nn.functional.pad takes it."""
        if self.padding == "valid":
            return [0] * (2 * self.dimensions)
        if self.padding == "same":
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            sides = [(n // 2, n - n // 2) for n in total]
        else:
            sides = [(int(n), int(n)) for n in self.padding]
        return [n for side in reversed(sides) for n in side]

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        convolve = _CONVOLUTIONS[self.dimensions]
        geometry = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        if self.padding_mode == "zeros" and self.padding_value == 0:
            return convolve(x, B, padding=self.padding, **geometry)
        if self.padding_mode == "zeros":
            x = F.pad(x, self.padding_of_sides(), value=self.padding_value)
        else:
            x = F.pad(x, self.padding_of_sides(), mode=self.padding_mode)
        return convolve(x, B, **geometry)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, groups={self.groups}, padding_value={self.padding_value}"
        )


class BinaryConv1d(BinaryConv):
    """(B, C, L) -> (B, O, L'), weight (O, C / groups, k). See `BinaryConv2d`."""

    dimensions = 1


class BinaryConv2d(BinaryConv):
    """(B, C, H, W) -> (B, O, H', W'), weight (O, C / groups, kh, kw).

    Example
    -------
    >>> latent = Tucker.from_weight(torch.randn(16, 8, 3, 3))
    >>> layer = BinaryConv2d(latent, LearnedScale(analytic_alpha(latent())), padding=1)
    >>> layer(torch.randn(2, 8, 32, 32)).shape
    torch.Size([2, 16, 32, 32])
    """

    dimensions = 2


class BinaryConv3d(BinaryConv):
    """(B, C, D, H, W) -> (B, O, D', H', W'), weight (O, C / groups, kd, kh, kw). See `BinaryConv2d`."""

    dimensions = 3
