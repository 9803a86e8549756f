"""Decoding of training images, at a fraction of their size where that is enough."""

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.pose.image_header import expect_few_pixels, jpeg_frame
from bitfactor.pose.images import decode_image, decoded

_REDUCED = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}


def decode_about(data: bytes, side: int, where: object) -> NDArray[np.uint8]:
    """Decode an image to (H, W, 3) RGB: a JPEG whose sides are far above `side` at 1/2, 1/4 or 1/8.

    Its sides stay at twice `side` or more, so that a part of it can still be cut out.
    """
    expect_few_pixels(data, where)
    frame = jpeg_frame(data)
    shorter = min(frame[:2]) if frame else 0
    for factor, flag in _REDUCED.items():
        if shorter >= 2 * factor * side:
            image = decoded(data, flag)
            if image is not None:
                return np.ascontiguousarray(image[..., ::-1], np.uint8)
    return decode_image(data, 3, where)
