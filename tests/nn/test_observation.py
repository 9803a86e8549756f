"""Layers that say nothing, by a batch."""

import torch
from torch import Tensor, nn

from bitfactor.nn.model import Call, dead_layers


class Twice(nn.Module):
    """Calls its layer with positive values, then with whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x.abs() + 1) * 0 + x)


def test_a_layer_that_is_called_twice_is_dead_only_if_both_calls_are():
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    assert not dead_layers(Twice(), ["layer"], Call((x,)), training=False)
    (sentence,) = dead_layers(Twice(), ["layer"], Call((x.abs() + 1,)), training=False)
    assert sentence.startswith("layer: 100% of its input channels have one sign")
