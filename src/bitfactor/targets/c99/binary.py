"""What binary layers in integers are made of: weights for look-ups, index bytes of signs, ends of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer.arithmetic import SUM_LIMIT

PLANE = 16  # channels of a plane of signs
_BLOCK = 8  # outputs of a word of weights
_QUAD = 4  # signs of an index byte
_COUNTED = 15  # taps of a plane whose counts fit a byte
_FEW = 4  # pixels for which entries are cheaper made than looked up


def planes_of(channels: int) -> int:
    return -(-channels // PLANE)


def places(planes: int) -> NDArray[np.uint8]:
    """Return the index bytes of -1 alone: which four of 16 channels each is of."""
    return np.tile(np.arange(PLANE // _QUAD, dtype=np.uint8) << 6, planes)


def index_bytes(signs: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the index bytes of a pixel, (C,) -> (planes * 4,)."""
    planes = planes_of(len(signs))
    padded = np.zeros(planes * PLANE, np.uint8)
    padded[: len(signs)] = signs
    bits = padded.reshape(-1, _QUAD) << np.arange(2, 2 + _QUAD, dtype=np.uint8)
    made: NDArray[np.uint8] = places(planes) | bits.sum(1, dtype=np.uint8)
    return made


def rising(threshold: Node) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Return T with sign = X > T, and where the sign is the opposite: -X > T is not X > -T - 1."""
    limits, falls = threshold.tensors["threshold"], threshold.tensors["direction"] < 0
    return np.where(falls, ~limits, limits), falls


@dataclass(frozen=True)
class Counting:
    """How the signs of a layer's windows are counted.

    `rows` of the kernel are counted together, `parts` are counted apart, `all` signs are in a window;
    `directly` says that no look-up is made.
    """

    rows: int
    parts: int
    all: int
    directly: bool


def counting(node: Node, channels: int, pixels: int) -> Counting | None:
    """Return how to count, or None for what is counted product by product."""
    height, width, depth = node.tensors["weight"].shape[1:]
    rows = min(_COUNTED // width, height)
    halves = channels % 2 == 0 or not any(node.attributes["padding"])  # a tap outside counts half
    if node.attributes["groups"] > 1 or not rows or not halves:
        return None
    parts = planes_of(channels) * -(-height // rows)
    return Counting(rows, parts, height * width * depth, pixels <= _FEW)


def words(weight: NDArray[np.int8]) -> NDArray[np.uint32]:
    """(O, kh, kw, C) -> (O / 8, planes * taps * 4): bit 4 * output + input; 1 for inputs that are not."""
    outputs, height, width, depth = weight.shape
    taps, planes = height * width, planes_of(depth)
    blocks = -(-outputs // _BLOCK)
    ones = np.ones((blocks * _BLOCK, taps, planes * PLANE), np.uint32)
    ones[:outputs, :, :depth] = weight.reshape(outputs, taps, depth) > 0
    bits = ones.reshape(blocks, _BLOCK, taps, planes, PLANE // _QUAD, _QUAD).transpose(0, 3, 2, 4, 1, 5)
    made: NDArray[np.uint32] = (
        bits.reshape(blocks, -1, _BLOCK * _QUAD) << np.arange(_BLOCK * _QUAD, dtype=np.uint32)
    ).sum(2, dtype=np.uint32)
    return made


@dataclass(frozen=True)
class Ending:
    """A term of a layer's sums plus a value of the stream, its bounds, and the signs of that.

    `table` has for each channel one factor, or one for sums above 0 and one for others, an offset, and the
    least value above the threshold.
    """

    table: NDArray[np.int32]
    shift: int
    down: int
    lower: int
    most: int


def ending(node: Node, i: int, threshold: Node | None, channels: int, all: int) -> Ending | None:
    """Return the end for a `weigh` node whose input i is the sums; None where 32 bits do not hold it."""
    k, lower, most = node.attributes["shifts"][i], node.attributes["lower"], node.attributes["upper"]
    power = power_of(node.tensors[f"positive{1 - i}"], node.tensors[f"negative{1 - i}"])
    down = node.attributes["shifts"][1 - i] - power
    roles = (f"positive{i}", f"negative{i}", "offset")
    tensors = [node.tensors.get(role, np.zeros(1)).astype(np.int64) for role in roles]
    if power < 0 or down < 0 or any(part.size > len(part) for part in tensors):
        return None
    p, q, add = (part.ravel() for part in tensors)
    offset = ((add - lower) << k) + (1 << k >> 1)
    factors, reach = [p, q], np.maximum(np.abs(p), np.abs(q)) * all
    if np.array_equal(p, q):
        factors, offset, reach = [2 * p], offset - p * all, 2 * reach
    if (reach + np.abs(offset) >= SUM_LIMIT).any():
        return None
    border = np.zeros(1, np.int64)
    if threshold is not None:
        border = np.clip(rising(threshold)[0].astype(np.int64) + 1 - lower, 0, most - lower + 1)
    table = np.stack([np.broadcast_to(part, channels) for part in (*factors, offset, border)], 1)
    return Ending(table.astype(np.int32), k, down, lower, most - lower)


def power_of(positive: NDArray[Any], negative: NDArray[Any]) -> int:
    """Return m if both multipliers are 2^m for all channels, else -1."""
    if positive.size > 1 or not np.array_equal(positive, negative) or positive.item() <= 0:
        return -1
    m = int(positive.item()).bit_length() - 1
    return m if positive.item() == 1 << m else -1
