"""The crop around a person: one affine map for the picture and for its joints.

Pixel centres stand at whole numbers, x to the right and y down: the top-left pixel's centre is (0, 0), its
corner (-0.5, -0.5). So a picture of W x H pixels covers (-0.5, -0.5) to (W - 0.5, H - 0.5), and mirroring it
takes x to W - 1 - x. Data sets that count from 1 are shifted where they are read.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

Size = int | tuple[int, int]


def crop_matrix(
    centre: Sequence[float] | NDArray[np.floating],
    side: float,
    size: Size,
    rotation: float = 0.0,
    flip: bool = False,
) -> NDArray[np.float64]:
    """Return the (2, 3) matrix that takes picture pixels to crop pixels.

    A square of `side` picture pixels around `centre` (x, y) fills the longer side of the crop, which is
    `size` pixels, or (height, width). `rotation`, in degrees, turns what is seen clockwise about the centre;
    `flip` mirrors it then, left to right.

    Example
    -------
    >>> matrix = crop_matrix((99.5, 49.5), side=200, size=50)  # the whole of a picture, 200 pixels wide
    >>> transform([[99.5, 49.5], [-0.5, 49.5]], matrix)
    array([[24.5, 24.5],
           [-0.5, 24.5]])
    """
    height, width = _pair(size)
    scale = max(height, width) / side
    angle = np.deg2rad(rotation)
    linear = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    if flip:
        linear[0] *= -1
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    offset = middle - linear @ np.asarray(centre, np.float64)
    return np.concatenate([linear, offset[:, None]], 1)


def whole_picture(height: int, width: int) -> tuple[tuple[float, float], float]:
    """Return centre and side of the smallest square box that holds a picture."""
    return ((width - 1) / 2, (height - 1) / 2), float(max(height, width))


def mpii_box(
    centre: NDArray[np.floating], scale: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centres (N, 2) and sides (N,) of MPII's crops from annotated centres and scales.

    MPII's `scale` is the person's height / 200 pixels. The crop that all published networks use lies
    15 * scale lower than the centre and is 1.25 * 200 * scale wide. The files of pose-hg-train hold centre
    and scale with this done to them (`adjusted_mpii_box`); done twice, it makes crops too large.

    Example
    -------
    >>> mpii_box(np.array([[966.0, 340.0]]), np.array([4.718488]))
    (array([[966.     , 410.77732]]), array([1179.622]))
    """
    centre, scale = np.asarray(centre, np.float64), np.asarray(scale, np.float64)
    return adjusted_mpii_box(centre + np.stack([0 * scale, 15 * scale], -1), 1.25 * scale)


def adjusted_mpii_box(
    centre: NDArray[np.floating], scale: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centres (N, 2) and sides (N,) of MPII's crops from centres and scales adjusted already."""
    return np.asarray(centre, np.float64), 200 * np.asarray(scale, np.float64)


def transform(points: ArrayLike, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map points (..., 2), x and y, by the (2, 3) `matrix`."""
    return np.asarray(np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2])


def invert(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (2, 3) matrix of the opposite map, from crop pixels to picture pixels."""
    linear = np.linalg.inv(matrix[:, :2])
    return np.concatenate([linear, -linear @ matrix[:, 2:]], 1)


def warp(picture: NDArray[np.uint8], matrix: NDArray[np.float64], size: Size) -> NDArray[np.uint8]:
    """Resample `picture`, (H, W) or (H, W, 3), into a crop of `size`: black where the picture ends.

    One bilinear resampling. Where the crop shrinks the picture by 2 or more, blocks of pixels are averaged
    before, so that nothing is skipped.
    """
    height, width = _pair(size)
    block = int(1 / max(np.sqrt(abs(np.linalg.det(matrix[:, :2]))), 1e-6) + 1e-6)
    if block >= 2:
        picture, matrix = _averaged(picture, matrix, (height, width), block)
    if 0 in picture.shape[:2]:
        return np.zeros((height, width, *picture.shape[2:]), np.uint8)
    warped = cv2.warpAffine(picture, matrix, (width, height), flags=cv2.INTER_LINEAR)
    return np.asarray(warped, np.uint8)


def _averaged(
    picture: NDArray[np.uint8], matrix: NDArray[np.float64], size: tuple[int, int], block: int
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Cut out what the crop shows, average blocks of `block` x `block` pixels, and adapt the matrix."""
    height, width = size
    corners = np.array([(x, y) for x in (-1, width) for y in (-1, height)])
    seen = transform(corners, invert(matrix))
    left, top = (max(int(low) - block, 0) for low in np.floor(seen.min(0)))
    right, bottom = (max(int(high) + block, 0) for high in np.ceil(seen.max(0)))
    part = picture[top:bottom, left:right]
    below, beside = -part.shape[0] % block, -part.shape[1] % block
    if part.size:
        padded = cv2.copyMakeBorder(part, 0, below, 0, beside, cv2.BORDER_CONSTANT, value=(0, 0, 0))
        smaller = (padded.shape[1] // block, padded.shape[0] // block)
        part = np.asarray(cv2.resize(padded, smaller, interpolation=cv2.INTER_AREA), np.uint8)
    shift = (block - 1) / 2
    back = np.array([[block, 0, left + shift], [0, block, top + shift], [0, 0, 1.0]])
    return part, matrix @ back


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
