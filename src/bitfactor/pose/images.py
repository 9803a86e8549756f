"""Images: decoded from any file, and made into inputs as a model file's input specification wants them.

Training images are decoded at a fraction of their size where that is enough. The header says first how large
they are, before anything is decoded.
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

MOST_PIXELS = 1 << 28  # 800 MB as 8-bit RGB; the largest sensors of phones have 200 million
_PNG = b"\x89PNG\r\n\x1a\n"
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_TIFF_ORDER = {b"II": "<", b"MM": ">"}
_TIFF_INTEGERS = {1: "B", 3: "H", 4: "I"}
_WIDTH, _HEIGHT, _TURN = 0x0100, 0x0101, 0x0112  # tags of TIFF, of which EXIF has the last


def expect_few_pixels(data: bytes, where: object) -> None:
    """Raise InputError where the header of an image states more than `MOST_PIXELS`, or a PNG is cut off.

    OpenCV allocates what a chunk of a PNG says of its length, up to 4 GB, before it reads it.
    """
    height, width = stated_size(data)
    if height * width > MOST_PIXELS:
        raise InputError(
            where, expected=f"at most {MOST_PIXELS:,} pixels", found=f"{height} x {width}", fix="resize it"
        )
    if data.startswith(_PNG) and not _is_whole(data):
        found = f"{len(data)} bytes of more"
        raise InputError(where, expected="a whole PNG", found=found, fix="download or write it again")


def _is_whole(png: bytes) -> bool:
    at = len(_PNG)
    while at + 8 <= len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        at += 12 + length
        if kind == b"IEND":
            break
    return at <= len(png)


def stated_size(data: bytes) -> tuple[int, int]:
    """Return height and width of a PNG, JPEG, WebP, BMP, GIF or TIFF; 0 and 0 where no header states them."""
    try:
        if data.startswith(b"\x89PNG"):
            width, height = struct.unpack_from(">II", data, 16)
        elif data.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"BM"):
            old = struct.unpack_from("<I", data, 14) == (12,)
            width, height = map(abs, struct.unpack_from("<HH" if old else "<ii", data, 18))
        elif data.startswith(b"RIFF"):
            return _size_of_webp(data)
        elif data[:2] in _TIFF_ORDER:
            return tiff_value(data, 0, _HEIGHT), tiff_value(data, 0, _WIDTH)
        else:
            return (jpeg_frame(data) or (0, 0))[:2]
    except struct.error:  # cut off
        return 0, 0
    return height, width


def _size_of_webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    return height, width


def jpeg_frame(data: bytes) -> tuple[int, int, int] | None:
    """Return height, width and number of components of a JPEG from its header; None if it has none."""
    if data[:2] != b"\xff\xd8":
        return None
    at = data.find(b"\xff", 2)  # decoders skip what stands between markers
    while at >= 0 and at + 9 < len(data):
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = (int.from_bytes(data[i : i + 2], "big") for i in (at + 5, at + 7))
            return height, width, data[at + 9]
        if marker in (0x00, 0xFF):  # no marker, or padding
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        at = data.find(b"\xff", at)
    return None


def exif_orientation(data: bytes) -> int:
    """Return the orientation, 1 to 8, that EXIF tells of an image file; 1 if it tells none."""
    try:
        start = _start_of_exif(data)
        turn = 1 if start is None else tiff_value(data, start, _TURN)
    except struct.error:  # cut off
        return 1
    return turn if 1 <= turn <= 8 else 1


_EXIF = b"Exif\0\0"


def _start_of_exif(data: bytes) -> int | None:
    """Return where the TIFF of EXIF begins.

    A PNG or WebP has it in a chunk, a TIFF is it, and a JPEG has it behind a name.
    """
    if data[:2] in _TIFF_ORDER:
        return 0
    if data.startswith(_PNG):
        start = _chunk(data, len(_PNG), b"eXIf", ">I4s", around=12, even=False)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        start = _chunk(data, 12, b"EXIF", "<4sI", around=8, even=True)
    else:
        at = data.find(_EXIF)
        return at + len(_EXIF) if at >= 0 else None
    return start + len(_EXIF) if start is not None and data.startswith(_EXIF, start) else start


def _chunk(data: bytes, at: int, wanted: bytes, head: str, *, around: int, even: bool) -> int | None:
    """Return where the content of the first such chunk begins; `around` are the bytes beside a content."""
    while at + 8 <= len(data):
        length, kind = sorted(struct.unpack_from(head, data, at), key=lambda one: isinstance(one, bytes))
        if kind == wanted:
            return at + 8
        at += around + length + (length % 2 if even else 0)
    return None


def tiff_value(data: bytes, start: int, wanted: int) -> int:
    """Return the integer under a tag of the first directory of a TIFF; 0 if it has none."""
    order = _TIFF_ORDER.get(data[start : start + 2])
    if order is None:
        return 0
    at = start + struct.unpack_from(f"{order}I", data, start + 4)[0]
    for entry in range(struct.unpack_from(f"{order}H", data, at)[0]):
        tag, kind = struct.unpack_from(f"{order}HH", data, at + 2 + 12 * entry)
        if tag == wanted and kind in _TIFF_INTEGERS:
            return int(struct.unpack_from(order + _TIFF_INTEGERS[kind], data, at + 10 + 12 * entry)[0])
    return 0


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

    Every target does it with the same integers and gives the same bytes. It is the mean of the area that a
    pixel covers where both sides shrink. Else it is linear interpolation, rounded once, halves up.
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


def shrunk(image: NDArray[np.uint8], pixels: int) -> NDArray[np.uint8]:
    """Return (H, W, 3) with at most so many pixels, in proportion, each a mean of what it covers."""
    height, width = image.shape[:2]
    factor = (pixels / (height * width)) ** 0.5
    if factor >= 1:
        return image
    height = min(max(int(height * factor), 1), pixels)
    size = height, min(max(int(width * factor), 1), pixels // height)  # fewer of an image one pixel wide
    return _middle(image, size, size, image.shape[2])


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
