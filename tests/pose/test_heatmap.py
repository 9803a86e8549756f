"""Decoding a heatmap finds the keypoint that was encoded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bitfactor.pose import LSP, MPII, decode, encode, flip_maps

SIZE, STRIDE = (24, 32), 4
HEIGHT, WIDTH = (n * STRIDE for n in SIZE)


def keypoints_inside(shape):
    unit = arrays(np.float64, (*shape, 2), elements=st.floats(0, 1))
    return unit.map(lambda u: u * np.array([WIDTH, HEIGHT]) - 0.5)


@given(keypoints_inside((3, 5)), st.sampled_from([0.7, 1.0, 2.0]))
def test_decoding_finds_what_was_encoded(keypoints, sigma):
    maps, weight = encode(keypoints, np.ones((3, 5), bool), SIZE, STRIDE, sigma)
    found, confidence = decode(maps, STRIDE)
    assert maps.shape == (3, 5, *SIZE)
    assert maps.dtype == weight.dtype == np.float32
    assert weight.all()
    assert np.abs(found - keypoints).max() <= STRIDE / 2 + 1e-3
    assert confidence.min() > 0.5


@given(keypoints_inside((5,)))
def test_away_from_the_border_within_a_quarter(keypoints):
    keypoints = keypoints * 0.8 + 0.1 * np.array([WIDTH, HEIGHT])
    found, _ = decode(encode(keypoints, np.ones(5, bool), SIZE, STRIDE)[0], STRIDE)
    assert np.abs(found - keypoints).max() <= STRIDE / 4 + 1e-3


@given(keypoints_inside((5,)), st.floats(-50, 50))
def test_shares_of_a_keypoint_are_decoded_to_their_mean(keypoints, offset):
    """So within a tenth of a cell, where the quarter of a cell may be off by a quarter."""
    keypoints = keypoints * 0.7 + 0.15 * np.array([WIDTH, HEIGHT])
    logs = np.log(encode(keypoints, np.ones(5, bool), SIZE, STRIDE)[0] + 1e-30) + offset
    found, _ = decode(logs, STRIDE, "softmax")
    assert np.abs(found - keypoints).max() <= STRIDE / 10


@pytest.mark.parametrize(
    ("cells", "expected"), [([(0, 0), (1, 0)], (0.5, 0)), ([(7, 7), (7, 6)], (7, 6.5)), ([(3, 0)], (3, 0))]
)
def test_shares_at_the_border_are_decoded_to_the_mean_of_what_is_inside(cells, expected):
    maps = np.full((1, 8, 8), -100.0)
    for x, y in cells:
        maps[0, y, x] = 3
    np.testing.assert_allclose(decode(maps, 1, "softmax")[0][0], expected)


def test_the_confidence_of_shares_is_that_of_the_cells_around():
    """Whatever the width of the Gaussians: half here and half far away is 0.5."""
    maps = np.full((3, 16, 16), -100.0)
    maps[0, 8, 8:10] = maps[1, 8, 8] = maps[1, 2, 2] = 5
    maps[2] = 7
    np.testing.assert_allclose(decode(maps, 1, "softmax")[1], [1, 0.5, 9 / 256])


@pytest.mark.parametrize(("scale", "expected"), [("linear", [0, 0.25, 1]), ("logits", [0.018, 0.562, 0.982])])
def test_the_confidence_is_the_height_on_the_target_s_scale(scale, expected):
    maps = np.full((3, 8, 8), -9.0)
    maps[:, 4, 4] = -4, 0.25, 4
    np.testing.assert_allclose(decode(maps, 1, scale)[1], expected, atol=1e-3)


@given(keypoints_inside((16,)))
def test_a_mirrored_crop_has_the_mirrored_maps(keypoints):
    """On any stride: the cells of the mirrored crop are those of the crop, reversed."""
    labelled = np.ones(16, bool)
    mirrored = (keypoints * [-1, 1] + [WIDTH - 1, 0])[list(MPII.flipped)]
    maps, _ = encode(keypoints, labelled, SIZE, STRIDE)
    maps_of_mirrored, _ = encode(mirrored, labelled, SIZE, STRIDE)
    np.testing.assert_allclose(flip_maps(maps_of_mirrored, MPII), maps, atol=1e-4)


@pytest.mark.parametrize("skeleton", [MPII, LSP])
def test_flipping_twice_is_the_identity(skeleton):
    maps = np.random.default_rng(0).standard_normal((2, len(skeleton.keypoints), 6, 9)).astype(np.float32)
    assert not np.array_equal(flip_maps(maps, skeleton), maps)
    assert np.array_equal(flip_maps(flip_maps(maps, skeleton), skeleton), maps)


@pytest.mark.parametrize("place", [(-0.6, 5), (5, -9), (WIDTH - 0.4, 5), (5, HEIGHT + 50), (np.nan, 5)])
def test_a_keypoint_outside_the_crop_is_not_drawn(place):
    maps, weight = encode(np.array([place, (10, 10)]), np.array([True, True]), SIZE, STRIDE)
    assert weight.tolist() == [0, 1]
    assert not maps[0].any()
    assert maps[1].max() > 0.7


def test_a_keypoint_without_label_is_not_drawn():
    maps, weight = encode(np.full((2, 2), 10.0), np.array([False, True]), SIZE, STRIDE)
    assert weight.tolist() == [0, 1]
    assert not maps[0].any()


def test_the_map_is_a_gaussian_around_the_keypoint():
    """A keypoint in the middle of cell (3, 2) with sigma 2: the peak is 1, two cells away exp(-1/2)."""
    keypoint = (np.array([[3.0, 2.0]]) + 0.5) * STRIDE - 0.5
    maps, _ = encode(keypoint, np.ones(1, bool), SIZE, STRIDE, sigma=2.0)
    assert maps[0, 2, 3] == 1
    np.testing.assert_allclose([maps[0, 4, 3], maps[0, 2, 5]], np.exp(-0.5), rtol=1e-6)


def test_scale_and_offset_of_the_values_do_not_matter():
    maps = np.random.default_rng(0).standard_normal((4, 8, 8))
    np.testing.assert_array_equal(decode(maps, 4)[0], decode(7 * maps - 100, 4)[0])


@pytest.mark.parametrize(("scale", "sure"), [("linear", 1), ("softmax", (24 + np.e) / (63 + np.e))])
def test_nan_is_found_nowhere(scale, sure):
    maps = np.zeros((2, 8, 8), np.float32)
    maps[0, 3, 3], maps[0, 5, 5], maps[1, 3, 3] = 1, np.nan, 1
    keypoints, confidence = decode(maps, 4, scale)
    assert np.isnan(keypoints[0]).all()
    assert np.isnan(confidence[0])
    np.testing.assert_allclose(keypoints[1], 13.5)
    assert confidence[1] == pytest.approx(sure)
