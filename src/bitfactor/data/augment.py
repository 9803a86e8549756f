"""Small changes to many small images at once, on the device where they live."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def generator(*key: int) -> torch.Generator:
    """Return a generator whose numbers depend on `key` alone; entries are 0 or more."""
    mixed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed))


_MARGIN = 4  # pixels


def shift_and_flip(images: Tensor, draws: Tensor, colour: tuple[int, ...]) -> Tensor:
    """Shift each image by up to 4 pixels in both directions and mirror every second one.

    Parameters
    ----------
    images
        (N, C, H, W), uint8.
    draws
        (N, 3) numbers in [0, 1): how far down, how far to the right, mirrored or not.
    colour
        Of what a shift uncovers, one value of 0..255 per channel.
    """
    n, _, height, width = images.shape
    base = images.new_tensor(colour).view(1, -1, 1, 1)
    # Padding is zero: around the image, the difference to `colour` is none.
    padded = F.pad(images - base, [_MARGIN] * 4).permute(0, 2, 3, 1)  # uint8 arithmetic wraps around and back
    top, left = (draws[:, :2] * (2 * _MARGIN + 1)).long().unbind(1)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
    which = torch.arange(n, device=images.device)[:, None, None]
    moved = padded[which, rows[:, :, None], columns[:, None, :]]  # (N, H, W, C)
    return moved.permute(0, 3, 1, 2).contiguous() + base
