"""What binary layers in integers are made of: weights for look-ups, index bytes of signs, ends of rows."""

from collections.abc import Sequence
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

    def of_channels(self, channels: int) -> "Counting":
        """Return this with the planes of so many channels."""
        return replace(self, planes=-(-channels // _PLANE))

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
class Curve:
    """What follows the sum of a term and a value of the stream, up to `last`.

    A PReLU whose slopes are below 1, and a number for each channel that may be added before and behind it.
    `signs` reads the PReLU, or the last.
    """

    last: str
    prelu: Node | None = None
    before: Node | None = None
    behind: Node | None = None
    signs: Node | None = None

    @property
    def shape(self) -> Literal["flat", "slope", "shifted_slope"]:
        if self.prelu is None:
            return "flat"
        return "shifted_slope" if self.before or self.behind else "slope"

    def columns(self, channels: int) -> NDArray[np.int32]:
        """Return a channel's slope, what is added before, and LARGEST more than what is added behind."""
        if self.prelu is None:
            return np.zeros((channels, 0), np.int32)
        columns = [self.prelu.tensors["slope"], _added(self.before), _added(self.behind) + LARGEST]
        columns = columns[: SHAPES[self.shape]]
        return np.stack([np.broadcast_to(column, channels) for column in columns], 1).astype(np.int32)


SHAPES = {"flat": 0, "slope": 1, "shifted_slope": 3}  # of a curve, with the numbers of a channel


def _added(node: Node | None) -> NDArray[np.int64]:
    """Return what a `weigh` node of one input adds to that."""
    return np.zeros(1, np.int64) if node is None else node.tensors["offset"].astype(np.int64)


def curve_of(stages: Sequence[Node]) -> Curve | None:
    """Return what follows the first of a layer's stages; None where that is more than a curve and signs."""
    first, *rest = stages
    current, found, prelu = first.name, {}, None
    for node in rest:
        if node.op == "threshold" and node.inputs == (current,) and "signs" not in found:
            found["signs"] = node
            continue
        if node.op == "prelu" and prelu is None and node.attributes["shift"] >= _BELOW_1:
            prelu = node
        elif node.op == "weigh" and _only_adds(node) and ("behind" if prelu else "before") not in found:
            found["behind" if prelu else "before"] = node
        else:
            return None
        if node.inputs != (current,):
            return None
        current = node.name
    signs, whole = found.get("signs"), (first.attributes["lower"], first.attributes["upper"])
    if prelu is None:
        return None if found.keys() - {"signs"} else Curve(current, signs=signs)
    if whole != _WHOLE or (signs and signs.inputs[0] not in (prelu.name, current)):
        return None
    return Curve(current, prelu, **found)


_BELOW_1 = 15  # shift of multipliers that are all below 1
_WHOLE = (-LARGEST, LARGEST)


def _only_adds(node: Node) -> bool:
    bounds = node.attributes["lower"], node.attributes["upper"]
    if len(node.inputs) != 1 or "offset" not in node.tensors or bounds != _WHOLE:
        return False
    factors = (node.tensors["positive0"], node.tensors["negative0"])
    return all(bool((part == 1 << node.attributes["shifts"][0]).all()) for part in factors)


@dataclass(frozen=True)
class Ending:
    """A term of a layer's sums plus a value of the stream, its bounds, and the signs of that.

    `factors` has for each channel one factor, or one for sums above 0 and one for others, and an offset. Sums
    of products are below 2^31 / 2^`spare`. `limits` has for two channels their thresholds or, where values
    are `narrow`, a word for both. `marks` has a byte of signs that count, and one that changes them.
    """

    of: Counting
    curve: Curve
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
        pairs = len(self.limits)
        curves = self.curve.columns(2 * pairs).reshape(pairs, -1)
        return np.concatenate([self.factors.reshape(pairs, -1), self.limits, curves], 1)

    @property
    def slope_shift(self) -> int:
        return int(self.curve.prelu.attributes["shift"]) if self.curve.prelu else 0

    def flags(self) -> dict[str, object]:
        """Return the flags of `finish_row`, by the names that they give it."""
        bent, signs = self.factors.shape[1] == 3, SIGNS[self.limits.shape[1]]
        return {
            f"{self.shift}": self.shift,
            "bent" if bent else "straight": int(bent),
            "shifted" if self.down else "same": int(not self.down),
            "bytes" if self.of.parts == 1 else "halves": int(self.of.parts == 1),
            signs: signs.upper(),
            self.curve.shape: SHAPES[self.curve.shape],
        }


def ending(node: Node, i: int, curve: Curve, channels: int, of: Counting) -> Ending | None:
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
    behind = curve.behind if curve.signs and curve.signs.inputs == (curve.last,) else None
    limits = limits_of(curve.signs, lower, most, channels, _added(behind))
    return Ending(of, curve, columns, *limits, k, spare, down, lower, most - lower)


def limits_of(
    threshold: Node | None, lower: int, upper: int, channels: int, added: NDArray[np.int64] | int = 0
) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """Return what tells the signs of two channels, and the marks of eight.

    The threshold is that of X + `added`, bounded; the signs come from X. Of values X within 2^15 the sum
    X + 32767 - T fits 16 bits, and its top bit says whether X > T.
    """
    if threshold is None:
        return np.zeros((channels // 2, 0), np.int32), np.zeros(0, np.uint16)
    limits, falls = rising(threshold)
    limits = np.broadcast_to(limits, channels).astype(np.int64)
    always, never = limits < lower, limits >= upper
    limits = np.where(always | never, limits, limits - added)
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
