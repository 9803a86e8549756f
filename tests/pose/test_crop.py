"""A mark in an image lands in the crop where its coordinates do."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfactor.pose import adjusted_mpii_box, crop_matrix, invert, mpii_box, transform, warp

CROPS = {
    "centre": st.tuples(st.floats(-50, 500), st.floats(-50, 500)),
    "side": st.floats(20, 900),
    "size": st.sampled_from([64, 256, (48, 96), (100, 30)]),
    "rotation": st.floats(-180, 180),
    "flip": st.booleans(),
}


def smooth_image(height, width):
    rng = np.random.default_rng(0)
    noise = rng.uniform(0, 255, (height, width, 3)).astype(np.float32)
    return cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 9), None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


@given(**CROPS)
def test_inverse_and_centre(centre, side, size, rotation, flip):
    matrix = crop_matrix(centre, side, size, rotation, flip)
    points = np.random.default_rng(0).uniform(-100, 600, (7, 2))
    np.testing.assert_allclose(transform(transform(points, matrix), invert(matrix)), points, atol=1e-6)
    height, width = (size, size) if isinstance(size, int) else size
    np.testing.assert_allclose(transform(centre, matrix), [(width - 1) / 2, (height - 1) / 2], atol=1e-9)
    longer = max(height, width)
    determinant = np.linalg.det(matrix[:, :2])
    np.testing.assert_allclose(determinant, (-1 if flip else 1) * (longer / side) ** 2, rtol=1e-9)


@given(**CROPS)
def test_flip_mirrors_the_crop(centre, side, size, rotation, flip):
    points = np.random.default_rng(1).uniform(0, 400, (5, 2))
    plain = transform(points, crop_matrix(centre, side, size, rotation))
    mirrored = transform(points, crop_matrix(centre, side, size, rotation, flip=True))
    width = size if isinstance(size, int) else size[1]
    np.testing.assert_allclose(mirrored[:, 0], width - 1 - plain[:, 0], atol=1e-6)
    np.testing.assert_allclose(mirrored[:, 1], plain[:, 1], atol=1e-6)


def test_rotation_turns_clockwise():
    above = transform((10, 0), crop_matrix((10, 10), 20, 20, rotation=90))
    np.testing.assert_allclose(above, (19.5, 9.5), atol=1e-9)


def test_the_whole_image_is_itself():
    image = smooth_image(40, 40)
    matrix = crop_matrix((19.5, 19.5), 40, 40)
    np.testing.assert_allclose(matrix, [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    assert np.array_equal(warp(image, matrix, 40), image)
    flipped = warp(image, crop_matrix((19.5, 19.5), 40, 40, flip=True), 40)
    assert np.array_equal(flipped, image[:, ::-1])


@pytest.mark.parametrize("shape", [(60, 80), (81, 37)])
def test_an_image_that_is_not_square_is_padded_with_black(shape):
    image = smooth_image(*shape) // 2 + 100
    height, width = shape
    longer = max(shape)
    crop = warp(image, crop_matrix(((width - 1) / 2, (height - 1) / 2), longer, longer), longer)
    inside = crop.min(2) > 60
    assert abs(inside.sum() - height * width) <= longer
    assert (crop.min(2) == 0).sum() >= longer**2 - height * width - longer


@pytest.mark.parametrize("side", [30, 90, 200, 450, 1500])
@pytest.mark.parametrize(("rotation", "flip"), [(0, False), (25, False), (-40, True)])
def test_a_mark_lands_where_its_coordinates_land(side, rotation, flip):
    """The image and the keypoints go through the same map, however strongly it shrinks."""
    image = np.zeros((900, 1100), np.uint8)
    mark, radius = np.array([603.0, 395.0]), side / 16
    y, x = np.mgrid[:900, :1100]
    image[(x - mark[0]) ** 2 + (y - mark[1]) ** 2 <= radius**2] = 255
    matrix = crop_matrix((600.0, 400.0), side, 64, rotation, flip)
    crop = warp(image, matrix, 64).astype(float)
    y, x = np.mgrid[:64, :64]
    found = np.array([(crop * x).sum(), (crop * y).sum()]) / crop.sum()
    np.testing.assert_allclose(found, transform(mark, matrix), atol=0.12)


def test_shrinking_averages_all_pixels():
    """One bright column in ten keeps its share; sampling single pixels would miss or keep all of it."""
    image = np.zeros((640, 640), np.uint8)
    image[:, ::10] = 200
    crop = warp(image, crop_matrix((319.5, 319.5), 640, 64), 64)
    assert abs(crop.astype(float).mean() - 20) < 1
    assert crop.std() < 3


def test_a_panorama_that_is_too_wide_to_warp_at_once():
    """OpenCV warps 32,766 pixels a side."""
    image = np.zeros((20, 60_000), np.uint8)
    image[:, 50_000:] = np.arange(10_000) % 251
    matrix = crop_matrix((55_000, 10), 40, 40)
    narrow = crop_matrix((5_000, 10), 40, 40)
    assert (warp(image, matrix, 40) == warp(image[:, 50_000:], narrow, 40)).all()
    assert warp(image, matrix, 40).any()


@pytest.mark.parametrize("side", [20, 5000])
def test_a_box_outside_the_image_is_black(side):
    crop = warp(smooth_image(50, 50), crop_matrix((-9000.0, 70.0), side, (16, 24)), (16, 24))
    assert crop.shape == (16, 24, 3)
    assert not crop.any()


def test_mpii_rule_once():
    raw = mpii_box(np.array([[966.0, 340.0]]), np.array([4.718488]))
    adjusted = adjusted_mpii_box(np.array([[966.0, 410.7773184]]), np.array([5.898109866]))
    for a, b in zip(raw, adjusted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
