"""Hierarchical blocks see what their authors' blocks see, with as many parameters."""

import pytest
import torch

from bitfactor.models.hourglass import HierarchicalBlock


@pytest.mark.parametrize(("in_channels", "channels"), [(8, 8), (8, 16), (16, 8)])
def test_shape(in_channels, channels):
    block = HierarchicalBlock(in_channels, channels)
    assert block(torch.randn(2, in_channels, 6, 4)).shape == (2, channels, 6, 4)


def test_a_half_a_quarter_and_a_quarter_see_3_5_and_7_pixels():
    """A changed pixel reaches as far as the convolutions that precede a channel."""
    torch.manual_seed(0)
    block = HierarchicalBlock(8, 8).eval()
    for module in block.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.weight.data.abs_()  # so that no sum cancels and ReLU lets all pass
    x = torch.rand(1, 8, 9, 9)
    changed = x.clone()
    changed[..., 4, 4] += 1
    difference = (block(changed) - block(x))[0] != 0
    reach = [int(channel.any(0).sum()) for channel in difference]
    assert reach == [3] * 4 + [5] * 2 + [7] * 2


def test_parameters_are_those_of_the_authors_block():
    """256 channels: 9 * (256 * 128 + 128 * 64 + 64 * 64) weights in convolutions."""
    block = HierarchicalBlock(256, 256)
    assert sum(p.numel() for p in block.parameters() if p.dim() == 4) == 405_504
