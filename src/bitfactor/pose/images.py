"""Images: decoded from any file, and made into inputs as a model file's input specification wants them.

Training images are decoded at a fraction of their size where that is enough.
"""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common import _native
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.pose.image_header import expect_few_pixels, jpeg_frame

Size = tuple[int, int]  # height and width

# What OpenCV would print about a damaged image, the error says.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def read_image(path: Path, channels: int) -> NDArray[np.uint8]:
    """Read the file at `path` as `decode_image` decodes it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error
    return decode_image(data, channels, path)


def decode_image(data: bytes, channels: int, where: object) -> NDArray[np.uint8]:
    """Decode an image of any size, depth and orientation: 1 channel -> (H, W), 3 channels -> (H, W, 3) RGB.

    Colours are decoded for one channel too, and made grey by `with_channels`, as every target does: a JPEG's
    own grey differs. `where` names the image in the error.
    """
    if not data:
        raise _bad(where, "an empty file")
    expect_few_pixels(data, where)
    image = decoded(data, cv2.IMREAD_COLOR_RGB)
    if image is not None:
        return with_channels(image, channels)
    stored = decoded(data, cv2.IMREAD_UNCHANGED)
    if stored is None:
        raise _bad(where, "data that cannot be decoded (damaged, or no image)")
    raise InputError(
        where,
        expected="an image of 8 or 16 bits a channel",
        found=f"{stored.dtype} values shaped {stored.shape}",
        fix="scale them to 0 to 255 and save them as uint8",
    )


def decoded(data: bytes, flags: int) -> NDArray[Any] | None:
    """Return what OpenCV makes of an image file; None where it can make nothing of it."""
    try:
        image: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:  # as of sides that are 0, or of more pixels than it takes
        return None
    return image


def with_channels(image: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Return (H, W) or (H, W, 3) as (H, W) for one channel, as (H, W, 3) for three."""
    if channels == 1 and image.ndim == 3:
        return _middle(image, image.shape[:2], image.shape[:2], 1)[..., 0]
    if channels == 3 and image.ndim == 2:
        return np.repeat(image[..., None], 3, 2)
    return image


def prepare(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.float32]:
    """Resize, crop in the centre and normalise: (H, W) or (H, W, C) of 0..255 -> (C, *spec.size)."""
    return normalise(resized(image, spec), spec)


def resized(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.uint8]:
    """Resize and crop in the centre: (H, W) or (H, W, C) -> (*spec.size) or (*spec.size, C).

    Every target does it with the same integers and gives the same bytes: the mean of the area that a pixel
    covers where both sides shrink, else linear interpolation, rounded once, halves up.

    Raises
    ------
    InputError
        If one side would become longer than 2^22 pixels.
    """
    whole = _resized_size(image, spec)
    if max(whole) > _LONGEST:
        raise InputError(
            "image",
            expected=f"one that is resized to {_LONGEST} pixels a side at most",
            found=f"{image.shape[0]} x {image.shape[1]} pixels, resized to {whole[0]} x {whole[1]}",
            fix="cut out the part that matters",
        )
    part = _middle(np.atleast_3d(image), whole, spec.size, image.shape[2] if image.ndim == 3 else 1)
    return part if image.ndim == 3 else part[..., 0]


_LONGEST = 1 << 22  # as in native/image.cpp


def _middle(image: NDArray[np.uint8], whole: Size, size: Size, channels: int) -> NDArray[np.uint8]:
    """Resize (H, W, C) to `whole` and cut out the middle, (*size, channels)."""
    if channels not in (1, 3):
        each = [_middle(image[..., i : i + 1], whole, size, 1) for i in range(channels)]
        return np.concatenate(each, -1)
    out = np.empty((*size, channels), np.uint8)
    _native.resize_image(np.ascontiguousarray(image), *whole, out)
    return out


def _resized_size(image: NDArray[np.uint8], spec: InputSpec) -> Size:
    """Return height and width before the centre is cut out, rounded halves up."""
    (height, width), (tall, wide) = image.shape[:2], spec.resize
    if not spec.keep_aspect:
        return spec.resize
    if tall * width >= wide * height:
        return tall, (2 * width * tall + height) // (2 * height)
    return (2 * height * wide + width) // (2 * width), wide


def normalise(image: NDArray[Any], spec: InputSpec) -> NDArray[np.float32]:
    """Turn (H, W) or (H, W, C) of 0..255 into (C, H, W): (x / 255 - mean) / std."""
    channels = np.atleast_3d(image).transpose(2, 0, 1).astype(np.float32) / 255
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (spec.mean, spec.std))
    return np.ascontiguousarray((channels - mean) / std)


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="an image (PNG, JPEG, ...)", found=found, fix="give a file that opens as an image"
    )


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
