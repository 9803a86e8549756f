"""Images are resized in proportion, and only 8 or 16 bits are taken."""

import cv2
import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec
from bitfactor.pose.images import decode_image, prepare


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
