"""Binary transposed convolutions in one and two dimensions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.decompositions import ALONE, LatentLike, Rank
from bitfactor.nn.conv import Convolution
from bitfactor.nn.layer import Making, float_layer
from bitfactor.nn.scale import ScaleLike
from bitfactor.nn.sign import EstimatorLike
from bitfactor.nn.transform import TransformLike

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d}
_FLOAT: dict[int, Callable[..., nn.Module]] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d}


class TransposedGeometry(NamedTuple):
    """In the order of torch's arguments, behind the bias."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    dilation: tuple[int, ...]

    def giving(
        self, output_size: Sequence[int], shape: Sequence[int], kernel: Sequence[int]
    ) -> "TransposedGeometry":
        """Return the geometry whose output for an input of this shape has that size."""
        dimensions = len(self.stride)
        each = zip(shape[-dimensions:], self.stride, self.padding, self.dilation, kernel, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in each]
        more = tuple(size - n for size, n in zip(output_size[-dimensions:], least, strict=False))
        fits = [0 <= n < max(s, d) for n, s, d in zip(more, self.stride, self.dilation, strict=False)]
        if len(fits) < dimensions or not all(fits):
            raise InputError(
                "output_size",
                expected=f"{least}, or more by less than a stride",
                found=str(list(output_size)),
                fix="leave it out",
            )
        return self._replace(output_padding=more)


def spread_magnitude(x: Tensor, outputs: int, kernel: Sequence[int], geometry: TransposedGeometry) -> Tensor:
    """Return XNOR-Net's K of a transposed convolution: what taps bring of mean abs(x), over their number."""
    groups, n = geometry.groups, len(kernel)
    mean = torch.stack([part.mean(-n - 1) for part in x.abs().chunk(groups, -n - 1)], -n - 1)
    K = CONVOLUTIONS[n](mean, x.new_full((groups, 1, *kernel), 1 / prod(kernel)), None, *geometry)
    return K.repeat_interleave(outputs // groups, -n - 1)


class BinaryConvTranspose(Convolution):
    """A binary transposed convolution, the interface of both; its geometry is a float layer's.

    The weight is shaped as torch's, (C, O / groups, *kernel); a filter is what gives one output channel, so
    alpha is (O,). A place that no tap reaches is 0: padding only cuts the output, so there is no padded sign.

    The first arguments are those of `torch.nn.ConvTranspose2d`, the others those of `BinaryConv2d`.
    """

    shown = (*Convolution.shown, "output_padding", "groups")

    @checked
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
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
        sizes = in_channels, out_channels, kernel_size, stride, padding, output_padding, groups
        like = float_layer(_FLOAT[self.dimensions], *sizes, bias, dilation)
        nn.init.kaiming_normal_(like.weight, mode="fan_in")  # of (C, O, ...), torch's "in" are the outputs
        self._make(like.weight, like.bias, making, groups)
        self._set_geometry(stride, padding, output_padding, dilation, groups)

    @staticmethod
    def filters(W: Tensor, groups: int = 1) -> Tensor:
        """(C, O / groups, *kernel) -> (O, C / groups, *kernel)."""
        inputs, outputs, *kernel = W.shape
        parts = W.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
        return parts.reshape(groups * outputs, inputs // groups, *kernel)

    @staticmethod
    def of_filters(V: Tensor, groups: int = 1) -> Tensor:
        """Undo `filters`."""
        outputs, inputs, *kernel = V.shape
        parts = V.reshape(groups, outputs // groups, inputs, *kernel).transpose(1, 2)
        return parts.reshape(groups * inputs, outputs // groups, *kernel)

    def _set_geometry(
        self,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> None:
        self.in_channels, per_group, *kernel = self.latent.shape
        self.out_channels, self.kernel_size, self.groups = per_group * groups, tuple(kernel), groups
        self.stride, self.dilation = self._each(stride), self._each(dilation)
        self.padding, self.output_padding = self._each(padding), self._each(output_padding)

    @property
    def geometry(self) -> TransposedGeometry:
        """Where the taps of each input go."""
        return TransposedGeometry(self.stride, self.padding, self.output_padding, self.groups, self.dilation)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """As of `torch.nn.ConvTranspose2d`: with `output_size`, that is the size of the output."""
        with self.giving(output_size, input.shape):
            return super().forward(input)

    @contextmanager
    def giving(self, output_size: Sequence[int] | None, shape: Sequence[int]) -> Iterator[None]:
        """Let outputs for an input of this shape have that size, if there is one."""
        own = self.output_padding
        if output_size is not None:
            self.output_padding = self.geometry.giving(output_size, shape, self.kernel_size).output_padding
        try:
            yield
        finally:
            self.output_padding = own

    def apply_weight(self, x: Tensor, B: Tensor) -> Tensor:
        return CONVOLUTIONS[self.dimensions](x, self.of_filters(B, self.groups), None, *self.geometry)

    def magnitude(self, x: Tensor) -> Tensor:
        return spread_magnitude(x, self.out_channels, self.kernel_size, self.geometry)


class BinaryConvTranspose1d(BinaryConvTranspose):
    """(B, C, L) -> (B, O, L'), weight (C, O / groups, k). See `BinaryConvTranspose2d`."""

    dimensions = 1


class BinaryConvTranspose2d(BinaryConvTranspose):
    """(B, C, H, W) -> (B, O, H', W'), weight (C, O / groups, kh, kw).

    Example
    -------
    >>> layer = BinaryConvTranspose2d(16, 8, 2, stride=2, latent="tucker", scale="learned")
    >>> layer(torch.randn(2, 16, 8, 8)).shape
    torch.Size([2, 8, 16, 16])
    """

    dimensions = 2
