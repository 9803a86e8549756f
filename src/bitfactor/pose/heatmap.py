"""Heatmaps: where a keypoint may be, one map per keypoint.

A map has one cell per `stride` x `stride` block of crop pixels, and cell c lies at the middle of its block.
So crop position u is cell position (u + 0.5) / stride - 0.5. With that rule the cells of a mirrored crop are
those of the crop in reverse order, for every stride.
"""

import math
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_above_0, expect_array
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton

MapScale = Literal["linear", "logits", "softmax"]

_PEAK = 1 / (2 * math.pi)  # of a Gaussian with sigma 1 and sum 1


@checked
def on_target_scale(maps: NDArray[np.floating], scale: MapScale) -> NDArray[np.float32]:
    """Bring heatmaps (..., h, w) to the scale of the target, where 0 is nothing and 1 the peak of a Gaussian.

    `linear` maps are on it already, `logits` are the argument of a sigmoid. Of `softmax` maps the softmax
    over all cells is the Gaussian of sum 1 and sigma 1. With a narrower one the values lie above 1.
    """
    maps = np.asarray(maps, np.float32)
    if scale == "linear":
        return maps
    if scale == "logits":
        return np.asarray(1 / (1 + np.exp(-maps.clip(-80, 80))), np.float32)
    powers = np.exp(maps - maps.max((-2, -1), keepdims=True))
    return np.asarray(powers / powers.sum((-2, -1), keepdims=True) / _PEAK, np.float32)


_REACH = 2  # cells to either side of the highest one whose mean is a keypoint's place


@checked
def encode(
    keypoints: NDArray[np.floating],
    labelled: NDArray[np.bool_],
    size: tuple[int, int],
    stride: int,
    sigma: float = 1.0,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw a Gaussian for each keypoint; its centre is the keypoint's exact place, not the nearest cell.

    Parameters
    ----------
    keypoints : (..., J, 2)
        x and y in crop pixels.
    labelled : (..., J)
        Which of them are known. A keypoint that is not, or that lies outside the crop, gets an empty map.
    size
        Height h and width w of the maps.
    stride
        Crop pixels per cell.
    sigma
        Standard deviation in cells; the Gaussian's peak is 1.

    Returns
    -------
    Maps (..., J, h, w), and weights (..., J): 1 where a Gaussian was drawn, else 0.

    Raises
    ------
    InputError
        If a shape does not fit, or size, stride or sigma is not above 0.
    """
    expect_array("encode(keypoints)", keypoints, (..., "J", 2))
    expect_array("encode(labelled)", labelled, keypoints.shape[:-1], "bfiu")
    for name, value in {"size": min(size), "stride": stride, "sigma": sigma}.items():
        expect_above_0(f"encode({name})", value)
    height, width = size
    cells = (np.asarray(keypoints, np.float32) + np.float32(0.5)) / np.float32(stride) - np.float32(0.5)
    with np.errstate(invalid="ignore"):
        inside = ((cells >= -0.5) & (cells <= np.array([width, height], np.float32) - 0.5)).all(-1)
    drawn = inside & np.asarray(labelled, bool)
    cells = np.where(drawn[..., None], cells, 0)
    profiles = [
        np.exp((np.arange(n, dtype=np.float32) - cells[..., axis, None]) ** 2 * np.float32(-0.5 / sigma**2))
        for axis, n in enumerate((width, height))
    ]
    across, down = profiles[0], profiles[1] * drawn[..., None]
    return down[..., :, None] * across[..., None, :], drawn.astype(np.float32)


@checked
def decode(
    maps: NDArray[np.floating], stride: int, scale: MapScale = "linear"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the keypoints: the highest cell, and from there a quarter of a cell towards the higher neighbour.

    Where maps are fractions of one keypoint, `softmax`, it is the mean of 5x5 cells around the highest
    instead.

    Parameters
    ----------
    maps : (..., J, h, w)
        One map per keypoint, of any range of values.
    stride
        Crop pixels per cell.
    scale
        What the values mean.

    Returns
    -------
    Keypoints (..., J, 2), x and y in crop pixels, and confidences (..., J) from 0 to 1. A confidence is the
    height of the highest cell, 1 in a target, or the fraction of those 5x5 cells. Where a map holds NaN, both
    are NaN.

    Raises
    ------
    InputError
        If the maps have no cells, or the stride is not above 0.
    """
    expect_array("decode(maps)", maps, (..., "h", "w"))
    expect_above_0("decode(stride)", stride)
    if 0 in maps.shape[-2:]:
        raise InputError(
            "decode(maps)", expected="maps with cells", found=f"empty ones, {maps.shape}", fix="pass others"
        )
    *lead, height, width = maps.shape
    flat = maps.reshape(prod(lead), height, width)
    rows = np.arange(len(flat))
    y, x = np.divmod(flat.reshape(len(flat), height * width).argmax(1), width)
    if scale == "softmax":
        place, confidence = _mean(flat, x, y)
    else:
        place = np.stack([x + _quarter(flat[rows, y], x), y + _quarter(flat[rows, :, x], y)], 1)
        confidence = on_target_scale(flat[rows, y, x], scale).astype(np.float64).clip(0, 1)
    keypoints = (place + 0.5) * stride - 0.5
    keypoints[np.isnan(confidence)] = np.nan
    return keypoints.reshape(*lead, 2), confidence.reshape(lead)


def _quarter(lines: NDArray[np.floating], at: NDArray[np.integer]) -> NDArray[np.float64]:
    """Lines (N, n) through the highest cells, which are at (N,): a quarter towards the higher neighbour."""
    n = lines.shape[1]
    rows = np.arange(len(lines))
    slope = lines[rows, np.minimum(at + 1, n - 1)] - lines[rows, np.maximum(at - 1, 0)]
    return np.where((at > 0) & (at < n - 1), 0.25 * np.sign(slope), 0.0)


def _mean(
    maps: NDArray[np.floating], x: NDArray[np.integer], y: NDArray[np.integer]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Maps (N, h, w), highest cells at (N,): mean place (N, 2) of the cells around, their fraction (N,)."""
    n, height, width = maps.shape
    rows, steps = np.arange(n)[:, None, None], np.arange(-_REACH, _REACH + 1)
    x, y = x[:, None, None], y[:, None, None]
    fractions = np.exp(maps.astype(np.float64) - maps[rows, y, x])
    across, down = x + steps, y + steps[:, None]
    inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
    around = fractions[rows, down.clip(0, height - 1), across.clip(0, width - 1)] * inside
    total = around.sum((1, 2))
    place = np.stack([(around * places).sum((1, 2)) / total for places in (across, down)], 1)
    return place, total / fractions.sum((1, 2))


@checked
def flip_maps(maps: NDArray[np.float32], skeleton: Skeleton) -> NDArray[np.float32]:
    """Return maps (..., J, h, w) of a mirrored crop as those of the crop: reversed, sides swapped.

    Raises
    ------
    InputError
        If there are not as many maps as keypoints.
    """
    expect_array("flip_maps(maps)", maps, (..., len(skeleton.keypoints), "h", "w"))
    return np.ascontiguousarray(maps[..., list(skeleton.flipped), :, ::-1])
