"""Mixed images and targets are blended alike, and smoothing is torch's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bitfactor.training.step import soften

INPUTS, TARGET = torch.arange(6.0).view(6, 1, 1, 1), torch.arange(6) % 4


@given(smoothing=st.floats(0, 0.9), mixup=st.floats(0, 3), seed=st.integers(0, 99))
def test_targets_are_shares_and_images_stay_in_range(smoothing, mixup, seed):
    inputs, soft = soften(INPUTS, TARGET, 4, smoothing, mixup, np.random.default_rng(seed))
    torch.testing.assert_close(soft.sum(1), torch.ones(6))
    assert (soft >= 0).all()
    assert inputs.min() >= 0
    assert inputs.max() <= 5 * (1 + torch.finfo(torch.float32).eps)  # a x + (1 - a) x may round up
    assert float(inputs.sum()) == pytest.approx(15, rel=1e-5)  # each image is someone's partner once


def test_image_and_target_are_blended_alike():
    """Images whose values are their targets' one-hot rows show the fraction of each."""
    images = F.one_hot(TARGET, 4).float().view(6, 4, 1, 1)
    inputs, soft = soften(images, TARGET, 4, 0, 0.5, np.random.default_rng(1))
    torch.testing.assert_close(inputs.view(6, 4), soft)
    assert ((soft > 0).sum(1) == 2).any()


@given(seed=st.integers(0, 99))
def test_cutmix_takes_as_much_of_a_target_as_of_its_image(seed):
    images = F.one_hot(TARGET, 4).float().view(6, 4, 1, 1).expand(6, 4, 8, 6)
    inputs, soft = soften(images, TARGET, 4, 0, 0, np.random.default_rng(seed), cutmix=1.0)
    torch.testing.assert_close(inputs.mean((2, 3)), soft)
    assert set(inputs.unique().tolist()) <= {0.0, 1.0}


def test_a_batch_has_one_of_mixup_and_cutmix():
    images = F.one_hot(TARGET, 4).float().view(6, 4, 1, 1).expand(6, 4, 8, 6)
    made = [soften(images, TARGET, 4, 0, 1.0, np.random.default_rng(seed), 1.0)[0] for seed in range(20)]
    cut = [set(inputs.unique().tolist()) <= {0.0, 1.0} for inputs in made]
    assert 0 < sum(cut) < 20


def test_smoothing_is_that_of_torch():
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    inputs, soft = soften(INPUTS, TARGET, 4, 0.1, 0, np.random.default_rng(0))
    assert inputs is INPUTS
    torch.testing.assert_close(
        F.cross_entropy(scores, soft), F.cross_entropy(scores, TARGET, label_smoothing=0.1)
    )


def shares(images, **options):
    """Return the share of itself that the first image keeps, where it has another partner."""
    draws = map(np.random.default_rng, range(600))
    soft = [soften(images, torch.arange(2), 2, 0, generator=each, **options)[1][0, 0] for each in draws]
    return np.array([float(share) for share in soft if share < 1])


def test_fractions_and_boxes_have_their_size():
    assert shares(torch.eye(2).view(2, 2, 1, 1), mixup=0.2).mean() == pytest.approx(0.5, abs=0.06)
    boxes = 1 - shares(torch.eye(2).view(2, 2, 1, 1).expand(2, 2, 32, 32), mixup=0, cutmix=1.0)
    assert boxes.mean() == pytest.approx(0.32, abs=0.04)
