"""Small changes to many small images at once, on the device where they live.

What a training image goes through between decoding and the network.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.functional import interpolate

from bitfactor.format import InputSpec
from bitfactor.pose.images import resized


def generator(*key: int) -> torch.Generator:
    """Return a generator whose numbers depend on `key` alone; entries are 0 or more."""
    mixed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed))


_MARGIN = 4  # pixels


def shift_and_flip(images: Tensor, draws: Tensor, colour: tuple[int, ...]) -> Tensor:
    """Shift each image by up to 4 pixels in both directions and mirror every second one.

    Parameters
    ----------
    images
        (N, C, H, W), uint8.
    draws
        (N, 3) numbers in [0, 1): how far down, how far to the right, mirrored or not.
    colour
        Of what a shift uncovers, one value of 0..255 per channel.
    """
    n, _, height, width = images.shape
    base = images.new_tensor(colour).view(1, -1, 1, 1)
    # Padding is zero: around the image, the difference to `colour` is none.
    padded = F.pad(images - base, [_MARGIN] * 4).permute(0, 2, 3, 1)  # uint8 arithmetic wraps around and back
    top, left = (draws[:, :2] * (2 * _MARGIN + 1)).long().unbind(1)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
    which = torch.arange(n, device=images.device)[:, None, None]
    moved = padded[which, rows[:, :, None], columns[:, None, :]]  # (N, H, W, C)
    return moved.permute(0, 3, 1, 2).contiguous() + base


Preset = Literal["paper", "standard"]
"""Test images are resized and cropped in the centre; what happens to training images is

- paper: resized to 256x256 whatever its shape, cropped to 224x224 at a random place, never mirrored; test
  images are resized to 256x256 too;
- standard: a random part of 8 % of its area or more, 3/4 to 4/3 as wide as high, resized to 224x224, and
  half of them mirrored (Szegedy et al. 2015); of test images the shorter side becomes 256.

Other sizes than 224 are in proportion."""

Image = NDArray[np.uint8]
Augmentation = Callable[[Image, InputSpec, NDArray[np.float64], Image], None]
"""Of an image of any size, (H, W, 3), writes what DRAWS random numbers in [0, 1) choose, (*size, 3)."""

DRAWS = 23
LEAST_AREA = 0.08
_TRIES = (DRAWS - 3) // 2
_RATIO = (3 / 4, 4 / 3)
_LOG_RATIO = (math.log(_RATIO[0]), math.log(_RATIO[1]))
MEAN = (0.485, 0.456, 0.406)  # of ImageNet's training images
STD = (0.229, 0.224, 0.225)


def input_spec(size: int, preset: Preset) -> InputSpec:
    """Return the specification of square inputs: resized to 256 for a size of 224, cropped in the centre."""
    resize = round(size * 256 / 224)
    return InputSpec((size, size), (resize, resize), MEAN, STD, keep_aspect=preset == "standard")


def _paper(image: Image, spec: InputSpec, draws: NDArray[np.float64], out: Image) -> None:
    # The part is cut out first, at its place to the nearest pixel: there is less to resize.
    rows, columns = (
        _scaled(int(draw * (whole - part + 1)), part, length / whole)
        for draw, whole, part, length in zip(draws[:2], spec.resize, spec.size, image.shape[:2], strict=True)
    )
    _resize(image[rows, columns], out)


def _scaled(start: int, length: int, scale: float) -> slice:
    return slice(round(start * scale), max(round((start + length) * scale), round(start * scale) + 1))


def _standard(
    image: Image, spec: InputSpec, draws: NDArray[np.float64], out: Image, mirror: bool, area: float
) -> None:
    rows, columns = _random_part(image.shape[0], image.shape[1], draws[1:], area)
    _resize(image[rows, columns], out)
    if mirror and draws[0] < 0.5:
        cv2.flip(out, 1, out)


def _centre(image: Image, spec: InputSpec, draws: NDArray[np.float64], out: Image, mirror: bool) -> None:
    out[:] = resized(image, spec)
    if mirror and draws[0] < 0.5:
        cv2.flip(out, 1, out)


def _random_part(height: int, width: int, draws: NDArray[np.float64], least: float) -> tuple[slice, slice]:
    """Return the rows and columns of a part; the largest in the middle if none of ten tries fits."""
    down, right, *shapes = draws.tolist()
    low, high = _LOG_RATIO
    for i in range(0, 2 * _TRIES, 2):
        area = height * width * (least + shapes[i] * (1 - least))
        ratio = math.exp(low + shapes[i + 1] * (high - low))
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            top, left = int(down * (height - h + 1)), int(right * (width - w + 1))
            return slice(top, top + h), slice(left, left + w)
    h, w = min(height, round(width / _RATIO[0])), min(width, round(height * _RATIO[1]))
    top, left = (height - h) // 2, (width - w) // 2
    return slice(top, top + h), slice(left, left + w)


def _resize(image: Image, out: Image) -> None:
    """(H, W, 3) -> (*size, 3), no pixel left out.

    Bilinear interpolation takes in every pixel as long as the sides shrink to no less than a half. Beyond
    that, each pixel becomes a mean of those that it covers; torch does it five times faster than OpenCV.
    """
    height, width, _ = out.shape
    if image.shape[0] < 2 * height and image.shape[1] < 2 * width:
        cv2.resize(image, (width, height), out, interpolation=cv2.INTER_LINEAR)
        return
    batch = torch.from_numpy(image)[None].permute(0, 3, 1, 2)
    view = interpolate(batch, (height, width), mode="bilinear", antialias=True)[0]
    out[:] = view.permute(1, 2, 0).numpy()


def augmentation_of(
    preset: Preset, *, crop: bool = True, mirror: bool = True, area: float = LEAST_AREA
) -> Augmentation:
    """Return what a preset does to training images.

    Parameters
    ----------
    crop
        Whether images are cropped at random; if not, they are resized and cropped as test images are.
    mirror
        Whether the preset "standard" mirrors half of the images.
    area
        The least fraction of an image's area that the preset "standard" shows.
    """
    if crop and preset == "paper":
        return _paper
    mirror = mirror and preset == "standard"
    return partial(_standard, mirror=mirror, area=area) if crop else partial(_centre, mirror=mirror)


def rand_augment(image: Image, strength: int, draws: NDArray[np.float64]) -> None:
    """Change an image (H, W, 3) in place by two operations, drawn of fourteen, of a strength from 0 to 10.

    RandAugment (E. D. Cubuk et al., arXiv 1909.13719), with the operations and ranges of its table and code,
    `tensorflow/tpu`: autoaugment.py. What a shift or a turn uncovers is grey.

    Parameters
    ----------
    draws
        RANDOM numbers in [0, 1): for each of two, which operation, and in which direction.
    """
    for which, direction in draws.reshape(-1, 2):
        level = strength / 10 * (1 if direction < 0.5 else -1)
        image[:] = OPERATIONS[int(which * len(OPERATIONS))](image, level)


RANDOM = 4


def _moved(image: Image, x: float = 0, y: float = 0, shear_x: float = 0, shear_y: float = 0) -> Image:
    """Shift by fractions of the sides, and shear about the upper left corner."""
    height, width = image.shape[:2]
    matrix = np.array([[1, shear_x, x * width], [shear_y, 1, y * height]])
    return _warped(image, matrix)


def _turned(image: Image, level: float) -> Image:
    height, width = image.shape[:2]
    centre = (width - 1) / 2, (height - 1) / 2
    return _warped(image, np.asarray(cv2.getRotationMatrix2D(centre, 30 * level, 1), np.float64))


def _warped(image: Image, matrix: NDArray[np.float64]) -> Image:
    grey = (128, 128, 128)
    out = cv2.warpAffine(image, matrix, image.shape[1::-1], borderMode=cv2.BORDER_CONSTANT, borderValue=grey)
    return np.asarray(out, np.uint8)


def _blended(image: Image, other: Image, level: float) -> Image:
    """Go away from another image, or towards it, by 0.9 of the level; 0 leaves all as it is."""
    return np.asarray(cv2.addWeighted(image, 1 + 0.9 * level, other, -0.9 * level, 0), np.uint8)


def _grey(image: Image) -> Image:
    return np.asarray(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), np.uint8)


def _stretched(image: Image, level: float) -> Image:
    low, high = image.min((0, 1)).astype(np.float32), image.max((0, 1)).astype(np.float32)
    stretched: Image = np.round((image - low) * (255 / np.maximum(high - low, 1))).astype(np.uint8)
    return stretched


OPERATIONS: tuple[Callable[[Image, float], Image], ...] = (
    lambda image, level: image,
    _stretched,
    lambda image, level: np.dstack([cv2.equalizeHist(channel) for channel in cv2.split(image)]),
    _turned,
    lambda image, level: np.where(image < 256 * (1 - abs(level)), image, 255 - image),  # solarise
    lambda image, level: image & np.uint8(256 - (1 << int(4 * abs(level)))),  # posterise
    lambda image, level: _blended(image, _grey(image), level),
    lambda image, level: _blended(image, np.full_like(image, round(float(_grey(image).mean()))), level),
    lambda image, level: _blended(image, np.zeros_like(image), level),
    lambda image, level: _blended(image, np.asarray(cv2.blur(image, (3, 3)), np.uint8), level),
    lambda image, level: _moved(image, shear_x=0.3 * level),
    lambda image, level: _moved(image, shear_y=0.3 * level),
    lambda image, level: _moved(image, x=0.3 * level),
    lambda image, level: _moved(image, y=0.3 * level),
)
