"""What the header of an image file says, read before anything is decoded."""

import struct

from bitfactor.common.errors import InputError

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
    """Return the orientation, 1 to 8, that EXIF tells at the start of an image file; 1 if it tells none."""
    start = data.find(b"Exif\0\0") + 6
    try:
        turn = tiff_value(data, start, _TURN) if start > 5 else 1
    except struct.error:  # cut off
        return 1
    return turn if 1 <= turn <= 8 else 1


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
