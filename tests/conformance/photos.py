"""Photos of every kind that a user has, as files: what each target is given."""

import io
from collections.abc import Iterator

import cv2
import numpy as np
from PIL import Image


def photos() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file; a name ends as the file's kind does."""
    yield "large.jpg", _encoded(".jpg", _drawn(1100, 1500))
    yield "small.png", _encoded(".png", _drawn(14, 20))
    yield "portrait.webp", _encoded(".webp", _drawn(300, 200))
    yield "grey.jpg", _encoded(".jpg", cv2.cvtColor(_drawn(200, 240), cv2.COLOR_BGR2GRAY))
    yield "palette.png", _with_palette(_drawn(120, 160))
    yield "alpha.png", _encoded(".png", np.dstack([_drawn(150, 100), _drawn(150, 100)[..., 0]]))
    yield "rotated.jpg", _turned(_encoded(".jpg", _drawn(120, 200)))
    yield "sixteen.png", _encoded(".png", _drawn(90, 110).astype(np.uint16) * 256 + 200)


def _drawn(height: int, width: int) -> np.ndarray:
    """A smooth image that fine grain lies on, so that resizing matters."""
    rng = np.random.default_rng(height)
    coarse = rng.integers(0, 256, (5, 6, 3), np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(smooth + rng.integers(-60, 60, (height, width, 3)), 0, 255).astype(np.uint8)


def _encoded(suffix: str, image: np.ndarray) -> bytes:
    return cv2.imencode(suffix, image)[1].tobytes()


def _with_palette(image: np.ndarray) -> bytes:
    written = io.BytesIO()
    Image.fromarray(image).convert("P", palette=Image.Palette.ADAPTIVE).save(written, "PNG", transparency=3)
    return written.getvalue()


def _turned(jpeg: bytes) -> bytes:
    """With EXIF data that says: shown turned by a quarter."""
    tiff = b"II*\0\x08\0\0\0" + b"\x01\0" + b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0" + b"\0\0\0\0"
    segment = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]
