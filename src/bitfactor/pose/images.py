"""Images: decoded from any file, and made into inputs as a model file's input specification wants them."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec

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

    `where` names the image in the error.
    """
    if not data:
        raise _bad(where, "an empty file")
    octets = np.frombuffer(data, np.uint8)
    flag = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR_RGB
    image: NDArray[Any] | None = cv2.imdecode(octets, flag)
    if image is not None:
        return image
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
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)
    if channels == 3 and image.ndim == 2:
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2RGB), np.uint8)
    return image


def prepare(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.float32]:
    """Resize, crop in the centre and normalise: (H, W) or (H, W, 3) of 0..255 -> (C, *spec.size)."""
    return normalise(resized(image, spec), spec)


def resized(image: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.uint8]:
    """Resize and crop in the centre: (H, W) or (H, W, 3) -> (*spec.size) or (*spec.size, 3)."""
    height, width = _resized_size(image, spec)
    shrinks = image.shape[0] > height and image.shape[1] > width
    whole = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    top, left = (height - spec.size[0]) // 2, (width - spec.size[1]) // 2
    part: NDArray[Any] = whole[top : top + spec.size[0], left : left + spec.size[1]]
    return part


def _resized_size(image: NDArray[np.uint8], spec: InputSpec) -> tuple[int, int]:
    if not spec.keep_aspect:
        return spec.resize
    scale = max(wanted / found for wanted, found in zip(spec.resize, image.shape[:2], strict=True))
    return round(image.shape[0] * scale), round(image.shape[1] * scale)


def normalise(image: NDArray[Any], spec: InputSpec) -> NDArray[np.float32]:
    """Turn (H, W) or (H, W, 3) of 0..255 into (C, H, W): (x / 255 - mean) / std."""
    channels = np.atleast_3d(image).transpose(2, 0, 1).astype(np.float32) / 255
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (spec.mean, spec.std))
    return np.ascontiguousarray((channels - mean) / std)


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="an image (PNG, JPEG, ...)", found=found, fix="give a file that opens as an image"
    )
