"""Pictures as a model file's input specification wants them."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.errors import InputError
from bitfactor.format import InputSpec

# What OpenCV would print about a damaged picture, the error says.
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def read_picture(path: Path, spec: InputSpec) -> NDArray[np.float32]:
    """Read a picture of any size and depth as an input, (C, H, W).

    Raises
    ------
    InputError
        If there is no such file, or OpenCV cannot decode it.
    """
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error
    flag = cv2.IMREAD_GRAYSCALE if len(spec.mean) == 1 else cv2.IMREAD_COLOR_RGB
    picture: NDArray[Any] | None = cv2.imdecode(data, flag) if data.size else None
    if picture is None:
        raise _bad(
            path, "an empty file" if not data.size else "data that cannot be decoded (damaged, or no picture)"
        )
    return prepare(picture, spec)


def prepare(picture: NDArray[np.uint8], spec: InputSpec) -> NDArray[np.float32]:
    """Resize, crop in the centre and normalise: (H, W) or (H, W, 3) of 0..255 -> (C, *spec.size)."""
    height, width = spec.resize
    shrinks = picture.shape[0] > height and picture.shape[1] > width
    resized = cv2.resize(
        picture, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    )
    top, left = (height - spec.size[0]) // 2, (width - spec.size[1]) // 2
    cropped = resized[top : top + spec.size[0], left : left + spec.size[1]]
    channels = np.atleast_3d(cropped).transpose(2, 0, 1).astype(np.float32) / 255
    mean, std = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (spec.mean, spec.std))
    return np.ascontiguousarray((channels - mean) / std)


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path, expected="a picture (PNG, JPEG, ...)", found=found, fix="give a file that opens as a picture"
    )
