"""Instances with their keypoints, as images that stand in a page."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Skeleton
from bitfactor.pose import transform, warp
from bitfactor.pose.draw import draw_skeleton
from bitfactor.study.documents.document import Figure

_SIDE = 220  # pixels of a shown crop


@dataclass(frozen=True)
class Person:
    """A person in an image (H, W, 3), RGB, whom `matrix` (2, 3) takes to a crop of `size` pixels.

    Keypoints found and true, (J, 2), are in pixels of the crop; a true one that is not known is NaN.
    """

    image: NDArray[np.uint8]
    matrix: NDArray[np.float64]
    size: int
    skeleton: Skeleton
    found: NDArray[np.float64]
    confidence: NDArray[np.float64]
    true: NDArray[np.float64]
    caption: str


def instances(name: str, shown: Sequence[Person]) -> list[Figure]:
    """Return a small figure of each person: what was found beside what is true."""
    return [
        Figure(f"{name}-{i}", _jpeg(_sides(person)), person.caption, "jpg", small=True)
        for i, person in enumerate(shown, 1)
    ]


def montage(shown: Sequence[Person]) -> bytes:
    """Return instances in a row as one JPEG file: what was found beside what is true."""
    return _jpeg(np.hstack([_sides(person) for person in shown]))


def _sides(person: Person) -> NDArray[np.uint8]:
    zoom = _SIDE / person.size
    enlarge = np.array([[zoom, 0, (zoom - 1) / 2], [0, zoom, (zoom - 1) / 2]])
    matrix = enlarge @ np.concatenate([person.matrix, [[0, 0, 1]]])
    crop = warp(person.image, matrix, _SIDE)
    sure = np.ones(len(person.true))
    sides = [
        draw_skeleton(crop, transform(keypoints, enlarge), confidence, person.skeleton)
        for keypoints, confidence in ((person.found, person.confidence), (person.true, sure))
    ]
    return np.hstack(sides)


def _jpeg(image: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes())
