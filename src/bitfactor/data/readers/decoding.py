"""Decoding of training images, at a fraction of their size where that is enough."""

import struct

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.pose.images import decode_image

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
