"""Skeletons drawn on images."""

from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_array, expect_image
from bitfactor.common.checks import checked
from bitfactor.common.image_spec import Skeleton, sided

Side = Literal["left", "right", "middle"]
Colour = tuple[int, int, int]

COLOURS: dict[Side, Colour] = {"left": (45, 156, 255), "right": (255, 122, 41), "middle": (122, 224, 122)}
"""RGB of the person's left (blue), right (orange), and of what is neither (green)."""

_EDGE: Colour = (20, 20, 24)
_CENTRE: Colour = (255, 255, 255)
_FAINTEST = 0.2  # opacity of what is not sure at all
_BITS = 4  # OpenCV draws at fractions of a pixel: 1 / 2^4
_SUBPIXELS = 2**_BITS


@checked
def draw_skeleton(
    image: NDArray[np.uint8],
    keypoints: NDArray[np.floating],
    confidence: NDArray[np.floating],
    skeleton: Skeleton,
) -> NDArray[np.uint8]:
    """Return a copy of `image` (H, W, 3), RGB, with limbs and keypoints; the less sure, the paler and
    thinner.

    Lines are as wide as fits the person's size.

    Parameters
    ----------
    keypoints : (J, 2)
        x and y in pixels of the image. A keypoint that is not finite is left out, with its limbs.
    confidence : (J,)
        From 0 to 1. A limb is as sure as the less sure of its ends.
    """
    expect_image("draw_skeleton(image)", image, colour=True)
    expect_array("draw_skeleton(keypoints)", keypoints, (len(skeleton.keypoints), 2))
    expect_array("draw_skeleton(confidence)", confidence, (len(skeleton.keypoints),))
    drawn = image.copy()
    known = np.isfinite(keypoints).all(1) & np.isfinite(confidence)
    if not known.any():
        return drawn
    sure = np.where(known, confidence, 0).clip(0, 1)
    radii = _line_width(keypoints[known], image.shape) * (0.3 + 0.3 * sure)
    for a, b in skeleton.edges:
        if known[a] and known[b]:
            colour = COLOURS[side_of(skeleton.keypoints[a], skeleton.keypoints[b])]
            _shape(drawn, keypoints[[a, b]], radii[[a, b]], colour, min(sure[a], sure[b]))
    for keypoint in np.flatnonzero(known):
        colour, place = COLOURS[side_of(skeleton.keypoints[keypoint])], keypoints[[keypoint]]
        _shape(drawn, place, 1.5 * radii[[keypoint]], colour, sure[keypoint])
        _shape(drawn, place, 0.6 * radii[[keypoint]], _CENTRE, sure[keypoint], edged=False)
    return drawn


def side_of(*names: str) -> Side:
    """Return the side that keypoints of these names are on; "middle" for both or none."""
    sides: set[Side] = {"left" if found[0] == "left" else "right" for n in names if (found := sided(n)[0])}
    return sides.pop() if len(sides) == 1 else "middle"


def _line_width(keypoints: NDArray[np.floating], shape: tuple[int, ...]) -> float:
    """Return a width in pixels: a 35th of the person, but neither invisible nor clumsy in the image."""
    extent, largest = float(np.ptp(keypoints, axis=0).max()), max(shape[:2])
    return max(min(extent / 35, largest / 50), largest / 300, 1.5)


def _shape(
    image: NDArray[np.uint8],
    points: NDArray[np.floating],
    radii: NDArray[np.floating],
    colour: Colour,
    confidence: float,
    edged: bool = True,
) -> None:
    """Draw, in place, a disc or the hull of two discs, with a dark edge that shows it on any background."""
    opacity = _FAINTEST + (1 - _FAINTEST) * float(confidence)
    if edged:
        _blend(image, points, radii + max(0.35 * radii.max(), 0.6), _EDGE, 0.6 * opacity)
    _blend(image, points, radii, colour, opacity)


def _blend(
    image: NDArray[np.uint8],
    points: NDArray[np.floating],
    radii: NDArray[np.floating],
    colour: Colour,
    opacity: float,
) -> None:
    margin = radii.max() + 2
    low = np.floor(points.min(0) - margin).astype(int).clip(0)
    high = np.ceil(points.max(0) + margin).astype(int) + 1
    part = image[low[1] : max(high[1], 0), low[0] : max(high[0], 0)]
    if not part.size:
        return
    mask = np.zeros(part.shape[:2], np.uint8)
    for point, radius in zip(points - low, radii, strict=True):
        cv2.circle(mask, _fixed(point), round(radius * _SUBPIXELS), 255, -1, cv2.LINE_AA, _BITS)
    if len(points) == 2:
        corners = np.array([_fixed(corner) for corner in _sides(points - low, radii)])
        cv2.fillConvexPoly(mask, corners, 255, cv2.LINE_AA, _BITS)
    alpha = (mask * np.float32(opacity / 255))[..., None]
    part[:] = np.rint(part + alpha * (np.array(colour, np.float32) - part))


def _sides(points: NDArray[np.floating], radii: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the four corners of what lies between two discs."""
    along = points[1] - points[0]
    across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-6)
    a, b = (across * radius for radius in radii)
    return np.stack([points[0] + a, points[1] + b, points[1] - b, points[0] - a])


def _fixed(point: NDArray[np.floating]) -> tuple[int, int]:
    """Return a point as OpenCV draws it, in fractions of a pixel."""
    x, y = np.rint(point * _SUBPIXELS).astype(int)
    return int(x), int(y)
