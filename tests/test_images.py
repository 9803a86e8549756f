"""Images are resized in proportion, and only 8 or 16 bits are taken."""

import cv2
import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec
from bitfactor.pose.images import decode_image, prepare, resized, with_channels


def spec(*, keep_aspect):
    return InputSpec((20, 20), (24, 24), (0.0,), (1.0,), keep_aspect)


@pytest.mark.parametrize("shape", [(48, 96), (96, 48)])
def test_an_image_keeps_its_proportions_where_it_is_to(shape):
    """A square in the middle stays a square, or is squashed to half its width."""
    image = np.zeros(shape, np.uint8)
    middle = tuple(slice(side // 2 - 12, side // 2 + 12) for side in shape)
    image[middle] = 255
    found = prepare(image, spec(keep_aspect=True))[0] > 0.5
    assert (found.any(1).sum(), found.any(0).sum()) == (12, 12)
    found = prepare(image, spec(keep_aspect=False))[0] > 0.5
    assert sorted((found.any(1).sum(), found.any(0).sum())) == [6, 12]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_image_of_other_values_than_8_or_16_bits(dtype):
    data = cv2.imencode(".tiff", np.zeros((5, 6, 3), dtype))[1].tobytes()
    message = rf"a: expected an image of 8 or 16 bits a channel, found {dtype} values shaped \(5, 6, 3\)"
    for channels in (1, 3):
        with pytest.raises(InputError, match=message):
            decode_image(data, channels, "a")


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (40, 40), (41, 83), (480, 640), (90, 25)])
@pytest.mark.parametrize("keep_aspect", [False, True])
def test_resizing_is_opencvs_but_for_rounding(shape, keep_aspect):
    """Its values differ by 1 at most, and of areas by far less than one in a hundred."""
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    rule = InputSpec((20, 24), (33, 29), (0.0,) * 3, (1.0,) * 3, keep_aspect)
    scale = max(33 / shape[0], 29 / shape[1])
    size = (round(shape[0] * scale), round(shape[1] * scale)) if keep_aspect else rule.resize
    shrinks = shape[0] > size[0] and shape[1] > size[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    top, left = (size[0] - 20) // 2, (size[1] - 24) // 2
    expected = cv2.resize(image, size[::-1], interpolation=how)[top : top + 20, left : left + 24]
    difference = np.abs(resized(image, rule).astype(int) - expected)
    assert difference.max() <= 1
    assert not shrinks or (difference > 0).mean() < 0.01


def test_grey_is_that_of_opencv():
    image = np.random.default_rng(0).integers(0, 256, (300, 200, 3), np.uint8)
    np.testing.assert_array_equal(with_channels(image, 1), cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))


def test_a_mean_is_exact_and_halves_are_rounded_up():
    image = np.array([[0, 1, 1, 1], [0, 1, 2, 2]], np.uint8)
    assert resized(image, InputSpec((1, 2), (1, 2), (0.0,), (1.0,))).tolist() == [[1, 2]]


def test_an_image_that_is_a_line():
    with pytest.raises(InputError, match="resized to 4194304 pixels a side at most, found 1 x 200000 pixels"):
        prepare(np.zeros((1, 200_000), np.uint8), spec(keep_aspect=True))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_grey_of_a_photo_is_that_of_its_colours(suffix):
    """A JPEG has a grey of its own, which a browser does not give."""
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    data = cv2.imencode(suffix, image)[1].tobytes()
    colours = decode_image(data, 3, "a")
    np.testing.assert_array_equal(decode_image(data, 1, "a"), with_channels(colours, 1))


def test_statistics_of_0_to_255_are_warned_of():
    with pytest.warns(UserWarning, match=r"of pixels from 0 to 1, .* divide those of 0 to 255 by 255"):
        InputSpec((8, 8), (8, 8), (123.7, 116.3, 103.5), (58.4, 57.1, 57.4))
    with pytest.raises(InputError, match=r"input_spec.size: expected 1 pixel or more, found \(-1, 32\)"):
        InputSpec((-1, 32), (40, 40), (0.5,), (0.5,))
