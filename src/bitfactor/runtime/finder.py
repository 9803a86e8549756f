"""From an image to keypoints: crop, network, decoding, back to the image."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_array, expect_image
from bitfactor.common.checks import check_fields, checked
from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec, ModelFile, Skeleton
from bitfactor.pose.crop import crop_matrix, invert, transform, warp
from bitfactor.pose.heatmap import MapScale, decode
from bitfactor.pose.images import normalise, prepare, with_channels

Box = tuple[float, float, float, float]
Seen = tuple[NDArray[np.float32], NDArray[np.float64]]  # an input, and what takes image pixels to its pixels

_MOST = 64  # times that an image, or a box in it, is longer than expected
_MARGIN = 1.25  # side of the crop / longer side of a person's box, as in training on MPII


@dataclass(frozen=True)
class PoseFinder:
    """Finds the keypoints of one person with a pose network.

    Parameters
    ----------
    network
        Inputs (N, C, H, W) -> heatmaps (N, J, h, w), as a `Session` gives.
    input_spec
        How a crop becomes an input.
    skeleton
        The keypoints of the heatmaps.
    scale
        What the heatmaps' values mean.
    """

    network: Callable[[NDArray[np.float32]], Any]
    input_spec: InputSpec
    skeleton: Skeleton
    scale: MapScale = "linear"

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, model: ModelFile, network: Callable[[NDArray[np.float32]], Any]) -> Self:
        """Return the finder for a model file, which `network` runs."""
        scale = model.provenance.get("heatmaps", "linear")
        if model.skeleton is None or model.input_spec is None:
            raise _bad("a skeleton and an input specification", "a file without")
        if scale not in get_args(MapScale):
            raise _bad(f"heatmaps of a known scale ({', '.join(get_args(MapScale))})", repr(scale))
        return cls(network, model.input_spec, model.skeleton, scale)  # type: ignore[arg-type]

    @checked
    def __call__(
        self, image: NDArray[np.uint8], box: Box | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Find the keypoints of the person in a box of an image (H, W, 3), RGB.

        Parameters
        ----------
        box
            Left, top, width and height of the person in pixels; what is seen is a square around it, a quarter
            wider. The whole image if left out, and nothing around it. It may reach out of the image.

        Returns
        -------
        Keypoints (J, 2), x and y in pixels of the image, and confidences (J,) from 0 to 1.
        """
        expect_image("image", image, colour=True)
        x, matrix = self._whole(image) if box is None else self._inside(image, box)
        maps = np.asarray(self.network(x[None]))[0]
        expect_array("heatmaps", maps, (len(self.skeleton.keypoints), "h", "w"))
        stride = self.input_spec.size[0] // maps.shape[1]
        if (stride * maps.shape[1], stride * maps.shape[2]) != self.input_spec.size:
            size = "{} x {}".format(*self.input_spec.size)
            found = f"maps of {maps.shape[1]} x {maps.shape[2]}"
            raise _bad(f"maps whose cells, all of one size, fill the input of {size} pixels", found)
        keypoints, confidence = decode(maps, stride, self.scale)
        return transform(keypoints, invert(matrix)), confidence

    def _whole(self, image: NDArray[np.uint8]) -> Seen:
        """All of the image, with black beside it in the input's proportions, resized as on every target."""
        (height, width), (tall, wide) = image.shape[:2], self.input_spec.size
        side, short = max(width / wide, height / tall), min(width / wide, height / tall)
        if side > _MOST * short:
            expected = f"an image at most {_MOST} times as long, for its other side, as the input"
            found = f"{width} x {height} pixels"
            raise InputError("image", expected=expected, found=found, fix="name a box, or cut out a part")
        h, w = math.ceil(side * tall), math.ceil(side * wide)
        top, left = (h - height) // 2, (w - width) // 2
        black = np.zeros((h, w, 3), np.uint8)
        black[top : top + height, left : left + width] = image
        x = prepare(with_channels(black, len(self.input_spec.mean)), self.input_spec.whole)
        down, across = tall / h, wide / w
        shift = ((left + 0.5) * across - 0.5, (top + 0.5) * down - 0.5)
        return x, np.array([[across, 0, shift[0]], [0, down, shift[1]]])

    def _inside(self, image: NDArray[np.uint8], box: Box) -> Seen:
        _expect_box(box, image)
        left, top, width, height = box
        centre = (left + (width - 1) / 2, top + (height - 1) / 2)
        matrix = crop_matrix(centre, _MARGIN * max(width, height), self.input_spec.size)
        crop = with_channels(warp(image, matrix, self.input_spec.size), len(self.input_spec.mean))
        return normalise(crop, self.input_spec), matrix


def _expect_box(box: Box, image: NDArray[np.uint8]) -> None:
    left, top, width, height = box
    if width <= 0 or height <= 0:
        expected = "left, top, width and height in pixels, the last two above 0"
    elif max(width, height) > _MOST * max(image.shape[:2]):
        expected = f"a box at most {_MOST} times as long as the image"
    elif left >= image.shape[1] or top >= image.shape[0] or left + width <= 0 or top + height <= 0:
        expected = f"a box that meets the image, {image.shape[1]} x {image.shape[0]} pixels"
    else:
        return
    raise InputError("box", expected=expected, found=str(box), fix="leave it out for the whole image")


def _bad(expected: str, found: str) -> InputError:
    return InputError(
        "pose network", expected=expected, found=found, fix="export it with `bitfactor export RUN`"
    )
