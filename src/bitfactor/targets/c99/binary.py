"""What binary layers in integers are made of: weights for look-ups, index bytes of signs, ends of rows."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.operations.integer import LARGEST, SUM_LIMIT

EIGHT = 8  # channels of a plane of signs, and outputs of a word of weights
_PLANE = 16  # channels of a plane of index bytes
_QUAD = 4  # signs of an index byte
SIGNS = ("no_signs", "narrow", "wide")  # by how many numbers tell those of two channels
_COUNTED = 15  # taps of a plane whose counts fit a byte
_FEW = 4  # pixels for which entries are cheaper made than looked up


def bytes_of(signs: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the bytes of a pixel, (C,) -> (C / 8,)."""
    return np.packbits(signs, bitorder="little")


def rising(threshold: Node) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Return T with sign = X > T, and where the sign is the opposite: -X > T is not X > -T - 1."""
    limits, falls = threshold.tensors["threshold"], threshold.tensors["direction"] < 0
    return np.where(falls, ~limits, limits), falls


@dataclass(frozen=True)
class Counting:
    """How the signs of a layer's windows are counted.

    `rows` of the kernel are counted together, `parts` are counted apart, `all` signs are in a window. `kind`
    is the function. The map of index bytes is (height, width) with `beside` pixels of -1 between two rows.
    `edges` says whether windows reach them.
    """

    kind: Literal["count_threes", "count_row", "count_row_directly"]
    rows: int
    parts: int
    all: int
    size: tuple[int, int]
    planes: int
    taps: int
    edges: bool

    @property
    def beside(self) -> int:
        return int(self.edges)

    @property
    def pitch(self) -> int:
        return self.size[1] + self.beside

    @property
    def plane_bytes(self) -> int:
        return 4 * (self.size[0] * self.pitch + self.beside)

    @property
    def next(self) -> int:
        """Words of counts of a pixel: in bytes, then in halves."""
        return max(2 * self.parts, 4)

    def memory(self, width: int) -> dict[str, int]:
        """Return the bytes of what a layer needs that makes rows of `width` outputs."""
        return {
            "index": self.planes * self.plane_bytes,
            "tables": 0 if self.kind == "count_row_directly" else self.taps * self.planes * _PLANE * _PLANE,
            "counts": width * self.next * 4,
            "edges": self.planes * 16 * (self.rows + 1) if self.edges else 0,
        }


def counting(
    node: Node, channels: int, size: tuple[int, int], padding: tuple[int, ...], out: tuple[int, int]
) -> Counting | None:
    """Return how to count on a map of `size` with `padding`; None for what is counted product by product."""
    height, width, depth = node.tensors["weight"].shape[1:]
    rows = min(_COUNTED // width, height)
    halves = channels % 2 == 0 or not any(padding)  # a tap outside counts half
    if node.attributes["groups"] > 1 or not rows or not halves:
        return None
    stride, plain = node.attributes["stride"], node.attributes["dilation"] == (1, 1)
    beyond = [(out[i] - 1) * stride[i] - padding[i] + (height, width)[i] - size[i] for i in (0, 1)]
    near = padding[1] <= 1 and beyond[1] <= 1 and max(padding[0], beyond[0]) < height
    kind: Literal["count_threes", "count_row", "count_row_directly"] = "count_row"
    if out[0] * out[1] <= _FEW:
        kind = "count_row_directly"
    elif width == 3 and rows == height and plain and stride[1] <= 2 and near:
        kind = "count_threes"
    planes = -(-channels // _PLANE)
    parts = planes * -(-height // rows)
    edges = kind == "count_threes" and (padding[1] > 0 or beyond[1] > 0)
    return Counting(kind, rows, parts, height * width * depth, size, planes, height * width, edges)


def words(weight: NDArray[np.int8], *, in_bytes: bool) -> NDArray[np.uint32]:
    """(O, kh, kw, C) -> (O / 8, planes * taps * 4): bit 4 * output + input; 1 for inputs that are not.

    Counts that stay in bytes are those of even outputs, then those of odd ones; others become halves.
    """
    outputs, height, width, depth = weight.shape
    taps, planes, blocks = height * width, -(-depth // _PLANE), -(-outputs // EIGHT)
    ones = np.ones((blocks * EIGHT, taps, planes * _PLANE), np.uint32)
    ones[:outputs, :, :depth] = weight.reshape(outputs, taps, depth) > 0
    if not in_bytes:
        ones = ones.reshape(blocks, EIGHT, taps, -1)[:, (0, 2, 4, 6, 1, 3, 5, 7)]
    bits = ones.reshape(blocks, EIGHT, taps, planes, _PLANE // _QUAD, _QUAD).transpose(0, 3, 2, 4, 1, 5)
    made: NDArray[np.uint32] = (
        bits.reshape(blocks, -1, EIGHT * _QUAD) << np.arange(EIGHT * _QUAD, dtype=np.uint32)
    ).sum(2, dtype=np.uint32)
    return made


@dataclass(frozen=True)
class Ending:
    """A term of a layer's sums plus a value of the stream, its bounds, and the signs of that.

    `factors` has for each channel one factor, or one for sums above 0 and one for others, and an offset. Sums
    of products are below 2^31 / 2^`spare`. `limits` has for two channels their thresholds or, where values
    are `narrow`, a word for both. `marks` has a byte of signs that count, and one that changes them.
    """

    factors: NDArray[np.int32]
    limits: NDArray[np.int32]
    marks: NDArray[np.uint16]
    shift: int
    spare: int
    down: int
    lower: int
    most: int

    def shifted(self, shift: int) -> "Ending":
        """Return the same with another shift, if 32 bits hold that: what layers share is compiled once."""
        up = shift - self.shift
        return replace(self, factors=self.factors << up, shift=shift) if up <= self.spare else self

    @property
    def table(self) -> NDArray[np.int32]:
        """Return a row for two channels."""
        return np.concatenate([self.factors.reshape(len(self.limits), -1), self.limits], 1)

    def flags(self, of: Counting) -> dict[str, object]:
        """Return the flags of `finish_row`, by the names that they give it."""
        bent, signs = self.factors.shape[1] == 3, SIGNS[self.limits.shape[1]]
        return {
            f"{self.shift}": self.shift,
            "bent" if bent else "straight": int(bent),
            "shifted" if self.down else "same": int(not self.down),
            "bytes" if of.parts == 1 else "halves": int(of.parts == 1),
            signs: signs.upper(),
        }


def ending(node: Node, i: int, threshold: Node | None, channels: int, of: Counting) -> Ending | None:
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
    factors, reach = [p, q], np.maximum(np.abs(p), np.abs(q)) * of.all
    if np.array_equal(p, q):
        factors, offset, reach = [2 * p], offset - p * of.all, 2 * reach
    most_reached = int((reach + np.abs(offset)).max())
    if most_reached >= SUM_LIMIT:
        return None
    columns = np.stack([np.broadcast_to(part, channels) for part in (*factors, offset)], 1).astype(np.int32)
    spare = (SUM_LIMIT - 1).bit_length() - most_reached.bit_length()
    return Ending(columns, *limits_of(threshold, lower, most, channels), k, spare, down, lower, most - lower)


def limits_of(
    threshold: Node | None, lower: int, upper: int, channels: int
) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """Return what tells the signs of two channels, and the marks of eight.

    Of values X within 2^15 the sum X + 32767 - T fits 16 bits, and its top bit says whether X > T.
    """
    if threshold is None:
        return np.zeros((channels // 2, 0), np.int32), np.zeros(0, np.uint16)
    limits, falls = rising(threshold)
    limits = np.broadcast_to(limits, channels).astype(np.int64)
    always, never = limits < lower, limits >= upper
    if upper - lower > 1 << 15:
        pairs, counts = limits.reshape(-1, 2), np.ones(channels, bool)
        changed = np.broadcast_to(falls, channels)
    else:
        words = LARGEST - np.where(always | never, lower, limits).reshape(-1, 2)
        pairs, counts = (words[:, :1] + (words[:, 1:] << 16)) & 0xFFFFFFFF, ~(always | never)
        changed = falls ^ always
    marks = bytes_of(counts) + (bytes_of(changed).astype(np.uint16) << 8)
    return pairs.astype(np.uint32).view(np.int32), marks.astype(np.uint16)


def power_of(positive: NDArray[Any], negative: NDArray[Any]) -> int:
    """Return m if both multipliers are 2^m for all channels, else -1."""
    if positive.size > 1 or not np.array_equal(positive, negative) or positive.item() <= 0:
        return -1
    m = int(positive.item()).bit_length() - 1
    return m if positive.item() == 1 << m else -1
