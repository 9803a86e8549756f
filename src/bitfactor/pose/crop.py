"""The crop around a person: one affine map for the image and for its keypoints.

Pixel centres stand at whole numbers, x to the right and y down: the top-left pixel's centre is (0, 0), its
corner (-0.5, -0.5). So an image of W x H pixels covers (-0.5, -0.5) to (W - 0.5, H - 0.5), and mirroring it
takes x to W - 1 - x. Data sets that count from 1 are shifted where they are read.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitfactor.common.arrays import expect_above_0, expect_array, expect_image
from bitfactor.common.checks import checked, shown
from bitfactor.common.errors import InputError

Size = int | tuple[int, int]


@checked
def crop_matrix(
    centre: Sequence[float] | NDArray[np.floating],
    side: float,
    size: Size,
    rotation: float = 0.0,
    flip: bool = False,
) -> NDArray[np.float64]:
    """Return the (2, 3) matrix that takes image pixels to crop pixels.

    A square of `side` image pixels around `centre` (x, y) fills the longer side of the crop, which is
    `size` pixels, or (height, width). `rotation`, in degrees, turns what is seen clockwise about the centre;
    `flip` mirrors it then, left to right.

    Example
    -------
    >>> matrix = crop_matrix((99.5, 49.5), side=200, size=50)  # the whole of an image, 200 pixels wide
    >>> transform([[99.5, 49.5], [-0.5, 49.5]], matrix)
    array([[24.5, 24.5],
           [-0.5, 24.5]])

    Raises
    ------
    InputError
        If the centre is not two finite values, or side or size is not above 0.
    """
    expect_above_0("crop_matrix(side)", side)
    expect_above_0("crop_matrix(size)", min(_pair(size)))
    expect_array("crop_matrix(centre)", np.asarray(centre), (2,))
    if not np.isfinite(centre).all():
        raise InputError(
            "crop_matrix(centre)", expected="finite values", found=str(centre), fix="pass x and y in pixels"
        )
    height, width = _pair(size)
    scale = max(height, width) / side
    angle = np.deg2rad(rotation)
    linear = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    if flip:
        linear[0] *= -1
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    offset = middle - linear @ np.asarray(centre, np.float64)
    return np.concatenate([linear, offset[:, None]], 1)


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

    Raises
    ------
    InputError
        If they are not so many, or shaped otherwise.
    """
    _expect_boxes("mpii_box", centre, scale)
    centre, scale = np.asarray(centre, np.float64), np.asarray(scale, np.float64)
    return adjusted_mpii_box(centre + np.stack([0 * scale, 15 * scale], -1), 1.25 * scale)


def adjusted_mpii_box(
    centre: NDArray[np.floating], scale: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centres (N, 2) and sides (N,) of MPII's crops from centres and scales adjusted already.

    Raises
    ------
    InputError
        If they are not so many, or shaped otherwise.
    """
    _expect_boxes("adjusted_mpii_box", centre, scale)
    return np.asarray(centre, np.float64), 200 * np.asarray(scale, np.float64)


def transform(points: ArrayLike, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map points (..., 2), x and y, by the (2, 3) `matrix`.

    Raises
    ------
    InputError
        If one has another shape.
    """
    _expect_matrix("transform", matrix)
    array = np.asarray(points)
    expect_array("transform(points)", array if array.dtype.kind in "fiu" else points, (..., 2))
    return np.asarray(array.astype(np.float64) @ matrix[:, :2].T + matrix[:, 2])


def invert(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (2, 3) matrix of the opposite map, from crop pixels to image pixels.

    Raises
    ------
    InputError
        If the matrix has another shape, or maps all points to a line.
    """
    _expect_matrix("invert", matrix)
    try:
        linear = np.linalg.inv(matrix[:, :2])
    except np.linalg.LinAlgError as error:
        raise InputError(
            "invert(matrix)",
            expected="a map that can be inverted",
            found=shown(matrix),
            fix="make it with crop_matrix",
        ) from error
    return np.concatenate([linear, -linear @ matrix[:, 2:]], 1)


@checked
def warp(image: NDArray[np.uint8], matrix: NDArray[np.float64], size: Size) -> NDArray[np.uint8]:
    """Resample `image`, (H, W) or (H, W, 3), into a crop of `size`: black where the image ends.

    One bilinear resampling. Where the crop shrinks the image by 2 or more, blocks of pixels are averaged
    before, so that nothing is skipped.

    Raises
    ------
    InputError
        If the image is no array of uint8 values of that shape, or the size is not above 0.
    """
    expect_image("warp(image)", image)
    _expect_matrix("warp", matrix)
    expect_above_0("warp(size)", min(_pair(size)))
    height, width = _pair(size)
    block = int(1 / max(np.sqrt(abs(np.linalg.det(matrix[:, :2]))), 1e-6) + 1e-6)
    if block >= 2 or max(image.shape[:2]) > _MOST:
        image, matrix = _averaged(image, matrix, (height, width), max(block, 1))
    if 0 in image.shape[:2]:
        return np.zeros((height, width, *image.shape[2:]), np.uint8)
    warped = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR)
    return np.asarray(warped, np.uint8)


_MOST = 32_766  # pixels a side that OpenCV warps


def _averaged(
    image: NDArray[np.uint8], matrix: NDArray[np.float64], size: tuple[int, int], block: int
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Cut out what the crop shows, average blocks of `block` x `block` pixels, and adapt the matrix."""
    height, width = size
    corners = np.array([(x, y) for x in (-1, width) for y in (-1, height)])
    seen = transform(corners, invert(matrix))
    left, top = (max(int(low) - block, 0) for low in np.floor(seen.min(0)))
    right, bottom = (max(int(high) + block, 0) for high in np.ceil(seen.max(0)))
    part = image[top:bottom, left:right]
    below, beside = -part.shape[0] % block, -part.shape[1] % block
    if part.size:
        padded = cv2.copyMakeBorder(part, 0, below, 0, beside, cv2.BORDER_CONSTANT, value=(0, 0, 0))
        smaller = (padded.shape[1] // block, padded.shape[0] // block)
        part = np.asarray(cv2.resize(padded, smaller, interpolation=cv2.INTER_AREA), np.uint8)
    shift = (block - 1) / 2
    back = np.array([[block, 0, left + shift], [0, block, top + shift], [0, 0, 1.0]])
    return part, matrix @ back


def _expect_matrix(function: str, matrix: object) -> None:
    expect_array(f"{function}(matrix)", matrix, (2, 3), "f")


def _expect_boxes(function: str, centre: NDArray[np.floating], scale: NDArray[np.floating]) -> None:
    expect_array(f"{function}(centre)", centre, ("N", 2))
    expect_array(f"{function}(scale)", scale, ("N",))
    if len(centre) != len(scale):
        raise InputError(
            f"{function}(scale)",
            expected=f"{len(centre)} scales, as there are centres",
            found=str(len(scale)),
            fix="pass one for each",
        )


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
