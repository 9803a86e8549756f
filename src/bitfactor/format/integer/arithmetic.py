"""The arithmetic of integers: two's complement, `>>` towards minus infinity, one rule of rounding.

A real x is S * X. Every real factor is a multiplier M of 16 bits behind a shift, M / 2^k; one k a node.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.operations.integer import LARGEST, MOST_SHIFT

Reals = NDArray[np.float64]

_LEAST_EXPONENT = -126  # of a normal float32, as which every scale is stored


def multipliers(factors: Reals) -> tuple[NDArray[np.int16], int] | None:
    """Return M and the largest k of 0 to 30 with M = rint(factors 2^k) in 16 bits; None if there is none.

    >>> multipliers(np.array([0.5, -0.25]))
    (array([ 16384,  -8192], dtype=int16), 15)
    """
    largest = float(np.abs(factors).max(initial=0.0))
    for k in range(MOST_SHIFT, -1, -1):
        if np.rint(np.ldexp(largest, k)) <= LARGEST:
            return np.rint(np.ldexp(factors, k)).astype(np.int16), k
    return None


def scale_for(largest: float) -> float:
    """Return the least power of two S with largest <= 32767 S; 1 for a value that is 0 alone.

    >>> scale_for(1.0)
    3.0517578125e-05
    """
    if largest == 0:
        return 1.0
    exponent = max(math.frexp(largest)[1] - 16, _LEAST_EXPONENT)
    while largest > math.ldexp(LARGEST, exponent):
        exponent += 1
    return math.ldexp(1.0, exponent)


def thresholds(threshold: NDArray[Any], direction: NDArray[np.int8], scale: float) -> NDArray[np.int16]:
    """Return T with direction * X > T exactly where direction * S X > direction * threshold.

    That holds for every integer X within 16 bits, since S is a power of two. 32767 is never, -32768 always.
    """
    quotient = np.floor(direction.astype(np.float64) * threshold.astype(np.float64) / scale)
    return np.clip(quotient, -LARGEST - 1, LARGEST).astype(np.int16)
