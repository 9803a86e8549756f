"""What the numbers of a heatmap mean, which depends on the loss that it was learned with."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import checked

MapScale = Literal["linear", "logits", "softmax"]

_PEAK = 1 / (2 * math.pi)  # of a Gaussian with sigma 1 and sum 1


@checked
def on_target_scale(maps: NDArray[np.floating], scale: MapScale) -> NDArray[np.float32]:
    """Bring heatmaps (..., h, w) to the scale of the target, where 0 is nothing and 1 the peak of a Gaussian.

    `linear` maps are on it already, `logits` are the argument of a sigmoid, and of `softmax` maps the softmax
    over all cells is the Gaussian of sum 1 and sigma 1; of a narrower one the values lie above 1.

    Example
    -------
    >>> on_target_scale(np.array([[0.0, 3.0]]), "logits").round(2)
    array([[0.5 , 0.95]], dtype=float32)
    """
    maps = np.asarray(maps, np.float32)
    if scale == "linear":
        return maps
    if scale == "logits":
        return np.asarray(1 / (1 + np.exp(-maps.clip(-80, 80))), np.float32)
    powers = np.exp(maps - maps.max((-2, -1), keepdims=True))
    return np.asarray(powers / powers.sum((-2, -1), keepdims=True) / _PEAK, np.float32)
