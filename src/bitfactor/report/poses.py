"""People with their joints, as images that stand in a page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Skeleton
from bitfactor.pose import transform, warp
from bitfactor.pose.draw import draw_skeleton

_SIDE = 220  # pixels of a shown crop
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.8rem"


@dataclass(frozen=True)
class Person:
    """A person in an image (H, W, 3), RGB, whom `matrix` (2, 3) takes to a crop of `size` pixels.

    Joints found and true, (J, 2), are in pixels of the crop; a true one that is not known is NaN.
    """

    image: NDArray[np.uint8]
    matrix: NDArray[np.float64]
    size: int
    skeleton: Skeleton
    found: NDArray[np.float64]
    confidence: NDArray[np.float64]
    true: NDArray[np.float64]
    caption: str


def people(shown: Sequence[Person]) -> str:
    """Return a grid of people, HTML with the images in it: what was found beside what is true."""
    return f'<div style="{_GRID}">{"".join(map(_figure, shown))}</div>'


def montage(shown: Sequence[Person]) -> bytes:
    """Return people in a row as one JPEG file: what was found beside what is true."""
    return _jpeg(np.hstack([_sides(person) for person in shown]))


def _figure(person: Person) -> str:
    data = base64.b64encode(_jpeg(_sides(person))).decode()
    caption = f'<figcaption style="font-size:.8rem;color:#52606d">{escape(person.caption)}</figcaption>'
    shown = f'<img alt="" style="width:100%;border-radius:.3rem" src="data:image/jpeg;base64,{data}">'
    return f'<figure style="margin:0">{shown}{caption}</figure>'


def _sides(person: Person) -> NDArray[np.uint8]:
    zoom = _SIDE / person.size
    enlarge = np.array([[zoom, 0, (zoom - 1) / 2], [0, zoom, (zoom - 1) / 2]])
    matrix = enlarge @ np.concatenate([person.matrix, [[0, 0, 1]]])
    crop = warp(person.image, matrix, _SIDE)
    sure = np.ones(len(person.true))
    sides = [
        draw_skeleton(crop, transform(joints, enlarge), confidence, person.skeleton)
        for joints, confidence in ((person.found, person.confidence), (person.true, sure))
    ]
    return np.hstack(sides)


def _jpeg(image: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes())
