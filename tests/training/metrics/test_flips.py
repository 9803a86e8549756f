"""The fraction of signs that changed between two calls."""

import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.training.metrics import FlipRatio


def test_fraction_of_signs_that_changed_since_the_last_call() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    binarize_(model, Binarization(latent="none"))
    flips = FlipRatio(model)
    with torch.no_grad():
        model[1].latent.weight[0].neg_()
    assert flips.of_all() == 0.125
    assert flips() == {"1": 0.25, "2": 0.0}
    assert flips() == {"1": 0.0, "2": 0.0}


def test_a_small_layer_counts_by_its_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 60), nn.Linear(60, 4))
    binarize_(model, Binarization(latent="none"))
    flips = FlipRatio(model)
    with torch.no_grad():
        model[1].latent.weight.neg_()
    assert flips.of_all() == 16 / (16 + 240)
    assert FlipRatio(nn.Linear(2, 2)).of_all() == 0
