"""Binary convolutions in one, two and three dimensions, and the binary linear layer."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.decompositions import ALONE, LatentLike, Rank
from bitfactor.nn.layer import BinaryLayer, Making, PaddingValue, float_layer
from bitfactor.nn.product import Geometry, Masks, binary_conv2d
from bitfactor.nn.scale import CONVOLUTIONS, ScaleLike, feature_magnitude, window_magnitude
from bitfactor.nn.sign import EstimatorLike
from bitfactor.nn.transform import TransformLike

Padding = int | Sequence[int | tuple[int, int]] | str  # a pair: before and behind a side
_FLOAT: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Convolution(BinaryLayer):
    """What convolutions and transposed ones have in common: a geometry, as that of a float layer."""

    dimensions: int
    shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def _each(self, value: int | Sequence[Any]) -> tuple[Any, ...]:
        return (value,) * self.dimensions if isinstance(value, int) else tuple(value)

    def extra_repr(self) -> str:
        return ", ".join(
            [str(self.in_channels), str(self.out_channels)]
            + [f"{name}={getattr(self, name)}" for name in self.shown]
        )


class BinaryConv(Convolution):
    """A binary convolution of any dimension, the interface of the three; its geometry is a float layer's.

    Padding comes after the sign, so a padded tap is `padding_value`. With 0 it is a third value beside -1 and
    +1, which adds nothing to the sum.

    The first arguments are those of `torch.nn.Conv2d`. The weight begins as a He-normal draw.

    Parameters
    ----------
    latent, rank
        What the sign is taken of: a decomposition of this layer, one of `bitfactor.decompositions.LAYERWISE`.
    scale
        The factor on the output: "none", "analytic" or "learned".
    weight_estimator, activation_estimator
        The gradients in place of the signs' own, see `bitfactor.nn.sign`.
    input_scale
        Multiply the output by the magnitude of the input too, XNOR-Net's K.

    Raises
    ------
    InputError
        If an argument is not what it should be. Torch's own errors on a geometry pass through.
    """

    shown = (*Convolution.shown, "groups", "padding_value")

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | Literal["same", "valid"] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        *,
        padding_value: PaddingValue = 0,
        latent: LatentLike = ALONE,
        scale: ScaleLike = "learned",
        rank: Rank = None,
        weight_estimator: EstimatorLike = "clipped",
        activation_estimator: EstimatorLike = "clipped",
        weight_transform: TransformLike = "none",
        input_scale: bool = False,
    ) -> None:
        estimators = weight_estimator, activation_estimator
        making = Making(latent, scale, rank, *estimators, weight_transform, input_scale)
        sizes = in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        like = float_layer(_FLOAT[self.dimensions], *sizes, bias, padding_mode)
        nn.init.kaiming_normal_(like.weight, mode="fan_out")
        self._make(like.weight, like.bias, making)
        self._set_geometry(stride, padding, dilation, groups, padding_value, padding_mode)

    def _set_geometry(
        self,
        stride: int | Sequence[int] = 1,
        padding: Padding = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        padding_value: PaddingValue = 0,
        padding_mode: str = "zeros",
    ) -> None:
        self.out_channels, per_group, *kernel = self.latent.shape
        self.in_channels, self.kernel_size, self.groups = per_group * groups, tuple(kernel), groups
        self.stride, self.dilation = self._each(stride), self._each(dilation)
        self.padding: Any = padding if isinstance(padding, str) else self._each(padding)
        self.padding_value, self.padding_mode = padding_value, padding_mode

    def padding_of_sides(self, x: Tensor) -> list[int]:
        """Return the padding before and after, last dimension first, as torch.nn.functional.pad takes it.

        Padding "same" gives ceil(side / stride) outputs, with strides beyond 1, where torch has none, too.
        """
        if self.padding == "valid":
            return [0] * (2 * self.dimensions)
        if self.padding == "same":
            sizes = zip(
                x.shape[-self.dimensions :], self.stride, self.dilation, self.kernel_size, strict=True
            )
            total = [max(d * (k - 1) - (n - 1) % s, 0) for n, s, d, k in sizes]
            sides = [(n // 2, n - n // 2) for n in total]
        else:
            sides = [n if isinstance(n, tuple) else (int(n), int(n)) for n in self.padding]
        return [n for side in reversed(sides) for n in side]

    def _is_uneven(self) -> bool:
        """Whether the padding before and behind a side differ, as (before, behind) in `padding`."""
        return any(isinstance(n, tuple) for n in self.padding)

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        convolve = CONVOLUTIONS[self.dimensions]
        geometry = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        plain = set(self.stride) == {1} if self.padding == "same" else not self._is_uneven()
        if self.padding_mode == "zeros" and self.padding_value == 0 and plain:
            return convolve(x, B, padding=self.padding, **geometry)
        if self.padding_mode == "zeros":
            x = F.pad(x, self.padding_of_sides(x), value=self.padding_value)
        else:
            x = F.pad(x, self.padding_of_sides(x), mode=self.padding_mode)
        return convolve(x, B, **geometry)

    def multiply(self, x: Tensor, V: Tensor, alpha: Tensor | None, masks: Masks) -> Tensor | None:
        sides = self.padding_of_sides(x)
        padding, after = sides[-2::-2], sides[::-2]
        plain = self.padding_mode == "zeros" and self.padding_value == 0 and padding == after
        if not plain or self.dimensions > 2 or x.dim() != V.dim() or x.shape[1] != self.in_channels:
            return None
        reach = zip(x.shape[2:], padding, self.dilation, self.kernel_size, strict=True)
        if any(n + 2 * p <= d * (k - 1) for n, p, d, k in reach):
            return None
        one = self.dimensions == 1
        stride, dilation = ((1,) * one + each for each in (self.stride, self.dilation))
        geometry = Geometry(stride, [0] * one + padding, dilation, self.groups)
        if one:
            y = binary_conv2d(x.unsqueeze(2), V.unsqueeze(2), alpha, masks, geometry)
            return y.squeeze(2)
        return binary_conv2d(x, V, alpha, masks, geometry)

    def magnitude(self, x: Tensor) -> Tensor:
        padding: object = self.padding
        if padding == "same" or self._is_uneven():
            x, padding = F.pad(x, self.padding_of_sides(x)), 0
        geometry = {"stride": self.stride, "padding": padding, "dilation": self.dilation}
        return window_magnitude(x, self.out_channels, self.kernel_size, groups=self.groups, **geometry)


class BinaryConv1d(BinaryConv):
    """(B, C, L) -> (B, O, L'), weight (O, C / groups, k). See `BinaryConv2d`."""

    dimensions = 1


class BinaryConv2d(BinaryConv):
    """(B, C, H, W) -> (B, O, H', W'), weight (O, C / groups, kh, kw).

    Example
    -------
    >>> layer = BinaryConv2d(8, 16, 3, padding=1, latent="tucker", scale="learned")
    >>> layer(torch.randn(2, 8, 32, 32)).shape
    torch.Size([2, 16, 32, 32])
    """

    dimensions = 2


class BinaryConv3d(BinaryConv):
    """(B, C, D, H, W) -> (B, O, D', H', W'), weight (O, C / groups, kd, kh, kw). See `BinaryConv2d`."""

    dimensions = 3


class BinaryLinear(BinaryLayer):
    """(..., F) -> (..., O), weight (O, F); arguments as of `torch.nn.Linear`, and those of `BinaryConv2d`.

    Example
    -------
    >>> BinaryLinear(64, 10, latent="svd")(torch.randn(2, 64)).shape
    torch.Size([2, 10])
    """

    @checked
    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        latent: LatentLike = ALONE,
        scale: ScaleLike = "learned",
        rank: Rank = None,
        weight_estimator: EstimatorLike = "clipped",
        activation_estimator: EstimatorLike = "clipped",
        weight_transform: TransformLike = "none",
        input_scale: bool = False,
    ) -> None:
        estimators = weight_estimator, activation_estimator
        making = Making(latent, scale, rank, *estimators, weight_transform, input_scale)
        like = float_layer(nn.Linear, in_features, out_features, bias)
        nn.init.kaiming_normal_(like.weight)
        self._make(like.weight, like.bias, making)
        self._set_geometry()

    def _set_geometry(self) -> None:
        self.out_features, self.in_features = self.latent.shape

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        return F.linear(x, B)

    def multiply(self, x: Tensor, V: Tensor, alpha: Tensor | None, masks: Masks) -> Tensor | None:
        """As a convolution by one tap over a map of all rows, whose channels are the features."""
        if x.shape[-1] != self.in_features:
            return None
        rows = x.reshape(-1, self.in_features)
        maps = rows.t()[None, :, :, None]
        y = binary_conv2d(maps, V[:, :, None, None], alpha, masks)
        return y[0, :, :, 0].t().reshape(*x.shape[:-1], self.out_features)

    def magnitude(self, x: Tensor) -> Tensor:
        return feature_magnitude(x, self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
