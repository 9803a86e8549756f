"""Images: decoded from any file, and made into inputs as a model file's input specification wants them.

Training images are decoded at a fraction of their size where that is enough.
"""

import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common import _native
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec

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
    octets = np.frombuffer(data, np.uint8)
    image: NDArray[Any] | None = cv2.imdecode(octets, cv2.IMREAD_COLOR_RGB)
    if image is not None:
        return with_channels(image, channels)
    stored: NDArray[Any] | None = cv2.imdecode(octets, cv2.IMREAD_UNCHANGED)
    if stored is None:
        raise _bad(where, "data that cannot be decoded (damaged, or no image)")
    raise InputError(
        where,
        expected="an image of 8 or 16 bits a channel",
        found=f"{stored.dtype} values shaped {stored.shape}",
        fix="scale them to 0 to 255 and save them as uint8",
    )


def with_channels(image: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Return (H, W) or (H, W, 3) as (H, W) for one channel, as (H, W, 3) for three."""
    if channels == 1 and image.ndim == 3:
        return _middle(image, image.shape[:2], image.shape[:2], 1)[..., 0]
    if channels == 3 and image.ndim == 2:
        return np.repeat(image[..., None], 3, 2)
    return image


def prepare(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.float32]:
    """Resize, crop in the centre and normalise: (H, W) or (H, W, 3) of 0..255 -> (C, *spec.size)."""
    return normalise(resized(image, spec), spec)


def resized(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.uint8]:
    """Resize and crop in the centre: (H, W) or (H, W, 3) -> (*spec.size) or (*spec.size, 3).

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
    """Turn (H, W) or (H, W, 3) of 0..255 into (C, H, W): (x / 255 - mean) / std."""
    channels = np.atleast_3d(image).transpose(2, 0, 1).astype(np.float32) / 255
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (spec.mean, spec.std))
    return np.ascontiguousarray((channels - mean) / std)


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="an image (PNG, JPEG, ...)", found=found, fix="give a file that opens as an image"
    )


_REDUCED = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


def decode_about(data: bytes, side: int, where: object) -> NDArray[np.uint8]:
    """Decode an image to (H, W, 3) RGB: a JPEG whose sides are far above `side` at 1/2, 1/4 or 1/8.

    Its sides stay at twice `side` or more, so that a part of it can still be cut out.
    """
    frame = jpeg_frame(data)
    shorter = min(frame[:2]) if frame else 0
    for factor, flag in _REDUCED.items():
        if shorter >= 2 * factor * side:
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
            if image is not None:
                return np.ascontiguousarray(image[..., ::-1], np.uint8)
    return decode_image(data, 3, where)


def jpeg_frame(data: bytes) -> tuple[int, int, int] | None:
    """Return height, width and number of components of a JPEG from its header; None if it has none."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = (int.from_bytes(data[i : i + 2], "big") for i in (at + 5, at + 7))
            return height, width, data[at + 9]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


_TURN = 0x0112  # the tag of the orientation


def exif_orientation(data: bytes) -> int:
    """Return the orientation, 1 to 8, that EXIF tells at the start of an image file; 1 if it tells none."""
    start = data.find(b"Exif\0\0") + 6
    order = {b"II": "<", b"MM": ">"}.get(data[start : start + 2]) if start > 5 else None
    if order is None:
        return 1
    try:
        at = start + struct.unpack_from(f"{order}I", data, start + 4)[0]
        for entry in range(struct.unpack_from(f"{order}H", data, at)[0]):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", data, at + 2 + 12 * entry)
            if tag == _TURN:
                return int(value) if 1 <= value <= 8 else 1
    except struct.error:  # cut off
        pass
    return 1
