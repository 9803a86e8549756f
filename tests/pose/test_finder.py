"""Keypoints are found in an image of any size, within the box of a person."""

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import Graph, InputSpec, ModelFile, Node, Skeleton, Value
from bitfactor.pose import crop_matrix, transform
from bitfactor.runtime.finder import PoseFinder

SPEC = InputSpec((32, 32), (32, 32), (0.0,), (1.0,))
SKELETON = Skeleton(("nose",))


def brightest(x):
    """A network: means over blocks of 4 x 4 pixels, as logits."""
    n, channels, height, width = x.shape
    blocks = x.reshape(n, channels, height // 4, 4, width // 4, 4)
    return 8 * blocks.mean((3, 5)) - 4


def spot(width, height, x, y, radius=2):
    image = np.zeros((height, width, 3), np.uint8)
    image[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1] = 255
    return image


@pytest.mark.parametrize(("x", "y"), [(5, 5), (100, 20), (60, 75), (118, 78)])
def test_a_grey_network_finds_the_spot(x, y):
    finder = PoseFinder(brightest, SPEC, SKELETON, "logits")
    keypoints, confidence = finder(spot(120, 80, x, y, 5))
    assert np.abs(keypoints[0] - (x, y)).max() <= 0.6 * 120 / 8
    assert 0 <= confidence[0] <= 1


@pytest.mark.parametrize("shift", [(0, 0), (40, 0), (13, 29)])
def test_a_box_moves_with_the_person(shift):
    finder = PoseFinder(brightest, SPEC, SKELETON, "logits")
    image = np.zeros((200, 200, 3), np.uint8)
    image[60:90, 50:80] = spot(30, 30, 11, 17)
    moved = np.roll(image, shift[::-1], (0, 1))
    expected, _ = finder(image, (50, 60, 30, 30))
    found, _ = finder(moved, (50 + shift[0], 60 + shift[1], 30, 30))
    np.testing.assert_allclose(found - shift, expected, atol=1e-6)


def test_shares_are_decoded_to_their_mean():
    """Two bright cells side by side in an image of the network's size: the keypoint lies between them."""
    image = np.zeros((32, 32, 3), np.uint8)
    image[8:12, 12:20] = 255
    found = {
        scale: PoseFinder(lambda x: 20 * brightest(x), SPEC, SKELETON, scale)(image)[0][0]
        for scale in ("logits", "softmax")
    }
    np.testing.assert_allclose(found["softmax"], (15.5, 9.5), atol=1e-3)
    assert abs(found["logits"][0] - 15.5) > 0.5


def test_an_empty_image_has_no_confidence():
    _, confidence = PoseFinder(brightest, SPEC, SKELETON, "logits")(np.zeros((9, 5, 3), np.uint8))
    assert confidence[0] == pytest.approx(1 / (1 + np.exp(4)), abs=1e-6)


def model(**options):
    graph = Graph(Value("x", (1, 32, 32), "float32"), (Node("y", "relu", ("x",)),), ("y",))
    return ModelFile(graph, (), **options)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"input_spec": SPEC}, "a file without"),
        ({"skeleton": SKELETON}, "a file without"),
        ({"input_spec": SPEC, "skeleton": SKELETON, "provenance": {"heatmaps": "decibel"}}, "'decibel'"),
    ],
)
def test_files_of_something_else(options, found):
    with pytest.raises(InputError, match=found):
        PoseFinder.of(model(**options), brightest)


def test_a_crop_is_that_of_training_and_the_whole_image_fills_the_input():
    finder, image = PoseFinder(brightest, SPEC, SKELETON, "logits"), np.zeros((80, 120, 3), np.uint8)
    matrix = finder._inside(image, (50, 60, 30, 20))[1]
    np.testing.assert_allclose(matrix, crop_matrix((64.5, 69.5), 1.25 * 30, (32, 32)))
    corners = transform(np.array([[-0.5, -20.5], [119.5, 99.5]]), finder._whole(image)[1])
    np.testing.assert_allclose(corners, [[-0.5, -0.5], [31.5, 31.5]], atol=1e-6)
