"""The size of an image is read from its header, and large JPEGs are decoded at a fraction."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from bitfactor.common.errors import InputError
from bitfactor.pose.images import decode_about, jpeg_frame


def encoded(image, **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=95, **options)
    return file.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (37, 500), (300, 20)])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"comment": b"\xff\xc0" * 40}])
def test_header_of_a_jpeg(smooth, size, options):
    assert jpeg_frame(encoded(smooth(0, *size), **options)) == (*size, 3)


def test_header_of_other_kinds(smooth):
    image = Image.fromarray(smooth(0, 20, 30))
    for mode, components in (("L", 1), ("CMYK", 4)):
        file = io.BytesIO()
        image.convert(mode).save(file, "jpeg")
        assert jpeg_frame(file.getvalue()) == (20, 30, components)
    whole = encoded(smooth(0))
    assert jpeg_frame(cv2.imencode(".png", smooth(0))[1].tobytes()) is None
    assert all(jpeg_frame(whole[:size]) in (None, jpeg_frame(whole)) for size in range(len(whole)))


@pytest.mark.parametrize(("side", "factor"), [(300, 1), (299, 2), (150, 2), (149, 4), (70, 8), (10, 8)])
def test_large_jpegs_are_decoded_at_a_fraction(smooth, side, factor):
    image = smooth(1, 1199, 1500)
    decoded = decode_about(encoded(image), side, "image")
    assert decoded.shape == (-(-1199 // factor), -(-1500 // factor), 3)
    assert min(decoded.shape[:2]) >= min(2 * side, 1199)
    small = cv2.resize(image, decoded.shape[1::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(decoded.astype(int) - small).mean() < 3


def test_other_formats_and_damage(smooth):
    png = cv2.imencode(".png", smooth(2, 900, 900)[..., ::-1])[1].tobytes()
    np.testing.assert_array_equal(decode_about(png, 10, "image"), smooth(2, 900, 900))
    for size in (2, 700, 5000, -2):
        with pytest.raises(InputError, match=r"^name: .* cannot be decoded"):
            decode_about(encoded(smooth(1, 1199, 1500))[:size], 100, "name")
