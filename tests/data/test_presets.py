"""Augmentation presets make an input of any image, as their papers say."""

from typing import get_args

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.data.augment import DRAWS, Preset, augmentation_of, input_spec
from bitfactor.pose.images import prepare


def numbers(seed):
    return np.random.default_rng(seed).random(DRAWS)


def seen(preset, image, spec, draws, **options):
    out = np.empty((*spec.size, 3), np.uint8)
    augmentation_of(preset, **options)(image, spec, draws, out)
    return out


@pytest.mark.parametrize("preset", get_args(Preset))
@given(height=st.integers(1, 700), width=st.integers(1, 700), seed=st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_any_image_gives_an_input(preset, height, width, seed):
    image = np.full((height, width, 3), 77, np.uint8)
    for draws in (numbers(seed), np.zeros(DRAWS), np.full(DRAWS, np.nextafter(1, 0))):
        view = seen(preset, image, input_spec(64, "standard"), draws)
        assert view.shape == (64, 64, 3)
        assert view.dtype == np.uint8
        assert (view == 77).all()


def test_paper_is_a_part_of_the_whole_resized(smooth):
    image, spec = smooth(3, 300, 400), input_spec(112, "standard")
    assert (spec.size, spec.resize) == ((112, 112), (128, 128))
    resized = cv2.resize(image, (128, 128), interpolation=cv2.INTER_AREA).astype(int)
    tops = set()
    for seed in range(30):
        draws = numbers(seed)
        top, left = int(draws[0] * 17), int(draws[1] * 17)
        view = seen("paper", image, spec, draws)
        assert np.abs(view - resized[top : top + 112, left : left + 112]).mean() < 3
        tops.add(top)
    assert len(tops) > 8


def test_paper_in_the_middle_is_what_is_test_set(smooth):
    image, spec = smooth(4, 375, 500), input_spec(224, "paper")
    view = seen("paper", image, spec, np.full(DRAWS, 0.5))
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (spec.mean, spec.std))
    inference = (prepare(image, spec) * std + mean) * 255
    assert np.abs(view.transpose(2, 0, 1) - inference).mean() < 1.5


@pytest.mark.parametrize("least", [0.08, 0.35, 0.8])
def test_standard_shows_parts_of_all_sizes_and_mirrors_half(least):
    height, width = 200, 300
    rows, columns = np.mgrid[:height, :width]
    image = np.stack([rows * 255 // height, columns * 255 // width, 0 * rows], 2).astype(np.uint8)
    areas, mirrored = [], 0
    for seed in range(300):
        view = seen("standard", image, input_spec(32, "standard"), numbers(seed), area=least).astype(int)
        high, wide = (np.ptp(view[..., channel]) / 255 * 34 / 32 for channel in (0, 1))
        areas.append(high * wide)
        mirrored += view[0, 0, 1] > view[0, -1, 1]
    assert least - 0.03 < min(areas) < least + 0.07
    assert max(areas) > 0.85
    assert 120 < mirrored < 180


def test_details_are_averaged_not_skipped():
    stripes = np.zeros((2000, 2000, 3), np.uint8)
    stripes[:, ::2] = 200
    for preset in get_args(Preset):
        assert (
            np.abs(
                seen(preset, stripes, input_spec(64, "standard"), np.full(DRAWS, 0.9)).astype(int) - 100
            ).max()
            < 30
        )
