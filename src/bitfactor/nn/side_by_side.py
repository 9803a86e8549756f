"""The gradients of a convolution of small maps, with images side by side as one wide image.

oneDNN's product for a weight's gradient on tiles (AMX) adds image by image: it reads and writes all of its
sums once for each. Of 512 filters of 512 channels over 4 x 4 pixels that takes eight times as long as the
product itself. Side by side, with columns of zeros between them, 32 images are one: the terms of each sum are
the same. Both gradients together take a half to a quarter of their time, with maps of at most 8 x 8 pixels.
Without tiles, and with larger maps, they take longer.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bitfactor.decompositions import compiled

_MOST_IMAGES, _MOST_PIXELS = 32, 64


def gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    needed: Sequence[bool],
) -> tuple[Tensor, Tensor]:
    """Return those of x (N, C, H, W) and of the weight (O, C / groups, kh, kw); None where not `needed`.

    `gradient` is that of the output, (N, O, H', W'). The formats of memory are torch's choice.
    """
    images = math.gcd(len(x), _MOST_IMAGES)
    keeps_width = 2 * padding[1] == dilation[1] * (weight.shape[3] - 1)
    beside = images > 1 and groups == 1 and keeps_width and _gains(gradient)
    if beside:
        # Of each image so many columns: its own, and zeros as far as a window reaches.
        columns, width = -(-(x.shape[3] + padding[1]) // stride[1]), x.shape[3]
        gradient, x = _beside(gradient, images, columns), _beside(x, images, columns * stride[1])
    window = stride, padding, dilation, False, [0, 0], groups
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, *window, [*needed, False]
    )
    return _apart(of_x, images, width) if beside and needed[0] else of_x, of_weight


def _gains(gradient: Tensor) -> bool:
    of_tiles = gradient.dtype == torch.bfloat16 and compiled.has_tiles()
    return of_tiles and gradient.shape[2] * gradient.shape[3] <= _MOST_PIXELS


def _beside(x: Tensor, images: int, columns: int) -> Tensor:
    """Return (N, C, H, W) as (N / images, C, H, images columns), channels last."""
    samples, channels, height, width = x.shape
    wide = x.new_zeros(samples // images, height, images, columns, channels)
    each = x.permute(0, 2, 3, 1).view(-1, images, height, width, channels)
    wide[:, :, :, :width] = each.transpose(1, 2)
    return wide.flatten(2, 3).permute(0, 3, 1, 2)


def _apart(wide: Tensor, images: int, width: int) -> Tensor:
    """Return images that are side by side as (N, C, H, width), channels last."""
    many, channels, height, columns = wide.shape
    each = wide.permute(0, 2, 3, 1).view(many, height, images, columns // images, channels)
    apart: Tensor = each[:, :, :, :width].transpose(1, 2).flatten(0, 1)
    return apart.permute(0, 3, 1, 2)
