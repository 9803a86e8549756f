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
    assert flips() == {"1": 0.25, "2": 0.0}
    assert flips() == {"1": 0.0, "2": 0.0}
