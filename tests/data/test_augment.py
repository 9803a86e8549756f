"""Crops and mirrored images follow their random numbers exactly."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.data.augment import shift_and_flip
from bitfactor.data.in_memory import augment


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_each_image_is_padded_cut_and_mirrored_as_its_numbers_say(seed, height, width):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (5, 3, height, width), dtype=torch.uint8, generator=generator)
    draws = torch.rand(5, 3, generator=generator)
    moved = shift_and_flip(images, draws, (10, 250, 128))
    for image, (down, right, mirror), out in zip(images.numpy(), draws.tolist(), moved.numpy(), strict=True):
        planes = [
            np.pad(plane, 4, constant_values=value)
            for plane, value in zip(image, (10, 250, 128), strict=True)
        ]
        top, left = int(down * 9), int(right * 9)
        expected = np.stack(planes)[:, top : top + height, left : left + width]
        np.testing.assert_array_equal(out, expected[:, :, ::-1] if mirror < 0.5 else expected)


def test_every_shift_and_both_directions_occur():
    image = torch.arange(1, 26, dtype=torch.uint8).view(1, 1, 5, 5).expand(4000, -1, -1, -1)
    moved = shift_and_flip(image, torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)), (0,))
    assert len({image.numpy().tobytes() for image in moved}) == 9 * 9 * 2


def test_digits_are_moved_where_they_are():
    """Drawn on a CPU, as everywhere, and moved on the device of the images."""
    generator = torch.Generator().manual_seed(0)
    assert augment(torch.empty(4, 1, 8, 8, device="meta"), generator).device.type == "meta"
