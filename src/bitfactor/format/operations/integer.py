"""Operations of precision `integer`; `bitfactor.format.integer` makes them of a network and states the rules.

Their values are integers, which float32 holds exactly: a pixel minus 128, 16 bits of a stream, or the sums of
a binary layer. `a` is what a real-valued layer sums up, in 32 bits. v >> k is towards minus infinity.
"""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.operations.convolution import (
    SLIDING,
    OverPixels,
    Weighted,
    channels_of_group,
    convolved,
    sums_of_products,
)
from bitfactor.format.operations.operation import (
    FLOATS,
    NUMBER,
    Array,
    DTypes,
    Float,
    Node,
    Onnx,
    Operation,
    Pixelwise,
    Place,
    Rows,
    Shape,
    bad,
    expect_map,
    expect_tensor,
    integers,
    pad,
    spread,
    windows,
)
from bitfactor.format.operations.pool import AvgPool2d, counted_taps
from bitfactor.format.program import Buffer, Instruction

Integers = NDArray[np.int64]

PIXEL, LARGEST = 128, 32767  # the largest magnitude of a pixel, and of 16 bits: -LARGEST - 1 never occurs
MOST_SHIFT, MOST_OFFSET, SUM_LIMIT = 30, 1 << 30, 1 << 31
MOST_POOLED = 32768
_SHORT: DTypes = (np.int16,)


def rounded(v: Integers, k: int) -> Integers:
    """Return v / 2^k to nearest, halves up."""
    return v if k == 0 else (v + (1 << (k - 1))) >> k


def saturated(v: Integers, lower: int = -LARGEST, upper: int = LARGEST) -> Integers:
    return np.clip(v, lower, upper)


def quantised(x: Array, factor: Array, offset: Array, lower: int, upper: int) -> Integers:
    """Return rint(factor x + offset) in float64, cut; a half that float32 has moved is one again."""
    levels = np.clip(x.astype(np.float64) * factor + offset, lower, upper)
    return np.rint(np.rint(levels * 1000) / 1000).astype(np.int64)


def by_channel(node: Node, role: str, x: Integers) -> Integers:
    """Return a tensor (C,) of a node so that it broadcasts against x (N, C, ...)."""
    return spread(node.tensors[role].astype(np.int64), x.ndim - 1)


def accumulated(node: Node, x: Integers, weight: Array) -> Integers:
    """Return a = B + sum(W X); a tap outside the map has X = `outside`."""
    outside = by_channel(node, "outside", x)
    a = sums_of_products(node, pad(x - outside, node, 0) + outside, weight)
    return a + by_channel(node, "bias", a)


def rescaled(node: Node, a: Integers) -> Integers:
    """Return sat(rnd(a M, k))."""
    return saturated(rounded(a * by_channel(node, "multiplier", a), node.attributes["shift"]))


def weighed_input(node: Node, i: int, x: Integers) -> Integers:
    """Return what input i adds to a weighted sum: rnd(x (x > 0 ? P : Q), k)."""
    positive, negative = (by_channel(node, f"{role}{i}", x) for role in ("positive", "negative"))
    return rounded(x * np.where(x > 0, positive, negative), node.attributes["shifts"][i])


def reach_of(node: Node, i: int) -> int:
    """Return what the magnitude of `weighed_input` is at most."""
    roles = (f"positive{i}", f"negative{i}")
    largest = max(int(np.abs(node.tensors[role].astype(np.int64)).max()) for role in roles)
    shift: int = node.attributes["shifts"][i]
    return (LARGEST * largest >> shift) + 1


def weighed(node: Node, *xs: Integers) -> Integers:
    total: Any = sum(weighed_input(node, i, x) for i, x in enumerate(xs))
    if "offset" in node.tensors:
        total = total + by_channel(node, "offset", total)
    return saturated(total, node.attributes["lower"], node.attributes["upper"])


def bent(node: Node, x: Integers) -> Integers:
    """Return a PReLU: X > 0 ? X : sat(rnd(X M, k))."""
    return np.where(x > 0, x, saturated(rounded(x * by_channel(node, "slope", x), node.attributes["shift"])))


def averaged(total: Integers, n: Integers) -> Integers:
    return np.asarray((2 * total + n) // (2 * n))


def pooled(node: Node, x: Integers) -> Integers:
    total: Any = sum(windows(pad(x, node, 0), node.attributes["kernel"], node.attributes["stride"]))
    return averaged(total, counted_taps(node, x.shape))


def _exact(x: Array) -> Integers:
    return x.astype(np.int64)


def _real(x: Array) -> Float:
    return np.asarray(x, np.float32)


class _Integer(Operation):
    """An operation of a program alone: a file holds what integers are made of, and ONNX has none of these."""

    in_files = False

    def onnx(self, b: Onnx, node: Node, *inputs: Any, **_: Any) -> None:
        raise bad(node, "an operation that ONNX has", "one of precision 'integer'")


def _expect_shift(node: Node, shift: Any) -> None:
    if not isinstance(shift, int) or not 0 <= shift <= MOST_SHIFT:
        raise bad(node, f"shifts of 0 to {MOST_SHIFT}", repr(shift))


def _expect_short(node: Node, role: str) -> None:
    if (node.tensors[role] < -LARGEST).any():
        raise bad(node, f"{role} of at least {-LARGEST}", str(node.tensors[role].min()))


class Quantise(_Integer, Rows):
    """From the numbers that a network takes to integers."""

    attributes = ("lower", "upper")
    tensors = {"factor": FLOATS, "offset": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        _expect_bounds(node)
        for role in ("factor", "offset"):
            expect_tensor(node, role, x[:1])
            if not np.isfinite(node.tensors[role]).all():
                raise bad(node, f"{role} of finite numbers", "others")
        return x

    def reference(self, node: Node, x: Float) -> Float:
        factor, offset = (
            spread(node.tensors[role].astype(np.float64), x.ndim - 1) for role in ("factor", "offset")
        )
        return _real(quantised(x, factor, offset, node.attributes["lower"], node.attributes["upper"]))

    def rows(self, node: Node, place: Place) -> Instruction:
        bounds = {end: node.attributes[end] for end in ("lower", "upper")}
        return Instruction.of("integers", source=place.sources[0], **bounds, **node.tensors)


def _expect_bounds(node: Node) -> None:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    if not all(isinstance(end, int) for end in (lower, upper)) or not -LARGEST <= lower <= upper <= LARGEST:
        raise bad(node, f"lower and upper within {-LARGEST} to {LARGEST}", f"{lower!r} and {upper!r}")


class _Layer(_Integer, Weighted):
    """Sums of products in 32 bits; then 16 bits of a stream, or, with one `scale`, real numbers."""

    attributes: tuple[str, ...] = ("largest", "shift")

    def tensors_of(self, node: Node) -> dict[str, DTypes]:
        last = {"scale": FLOATS} if "scale" in node.tensors else {"multiplier": _SHORT}
        return {"weight": (np.int8,), "bias": (np.int32,), "outside": _SHORT, **last}

    def _expect(self, node: Node, channels: int) -> None:
        """Raise InputError unless every sum, in every order, fits 32 bits."""
        weight, largest = node.tensors["weight"], node.attributes["largest"]
        _expect_shift(node, node.attributes["shift"])
        if largest not in (PIXEL, LARGEST):
            raise bad(node, f"largest {PIXEL} or {LARGEST}", repr(largest))
        expect_tensor(node, "bias", weight.shape[:1])
        expect_tensor(node, "outside", (channels,))
        if (np.abs(node.tensors["outside"].astype(np.int64)) > largest).any():
            raise bad(node, f"outside within {largest}", str(np.abs(node.tensors["outside"]).max()))
        magnitudes = np.abs(weight.reshape(len(weight), -1).astype(np.int64)).sum(1)
        sums = magnitudes * largest + np.abs(node.tensors["bias"].astype(np.int64))
        if (sums >= SUM_LIMIT).any():
            raise bad(node, "sums that 32 bits hold", str(sums.max()))
        if "scale" in node.tensors:
            expect_tensor(node, "scale", (1,))
        else:
            expect_tensor(node, "multiplier", weight.shape[:1])
            _expect_short(node, "multiplier")


class IntegerConv2d(_Layer):
    attributes = (*SLIDING, *_Layer.attributes)

    def infer(self, node: Node, x: Shape) -> Shape:
        shape = convolved(node, x, channels_of_group(node, x))
        if len(x) != 3:
            raise bad(node, "one map (C, H, W)", str(x))
        self._expect(node, x[0])
        return shape

    def reference(self, node: Node, x: Float) -> Float:
        a = accumulated(node, _exact(x), node.tensors["weight"])
        if "scale" in node.tensors:
            return _real(a * node.tensors["scale"].astype(np.float64))
        return _real(rescaled(node, a))

    def rows(self, node: Node, place: Place) -> Instruction:
        weight = node.tensors["weight"]
        long = {role: node.tensors[role].astype(np.int32) for role in ("bias", "outside", "multiplier")
                if role in node.tensors}  # fmt: skip
        scale = {"scale": node.tensors["scale"]} if "scale" in node.tensors else {}
        return Instruction.of(
            "integer_conv",
            source=place.sources[0],
            window=place.window(node, weight.shape[1:3]),
            groups=node.attributes["groups"],
            largest=node.attributes["largest"],
            shift=node.attributes["shift"],
            weight=np.ascontiguousarray(weight).view(np.uint8),
            **long,
            **scale,
        )


class IntegerLinear(OverPixels, _Layer):
    of = IntegerConv2d()


class Weigh(_Integer, Pixelwise):
    """A value times P where it is above 0, and times Q where not; an offset; bounds."""

    inputs: tuple[tuple[str, ...], ...] = (NUMBER,)
    attributes = ("shifts", "lower", "upper")

    def tensors_of(self, node: Node) -> dict[str, DTypes]:
        roles = [f"{role}{i}" for i in range(len(self.inputs)) for role in ("positive", "negative")]
        more: dict[str, DTypes] = {"offset": (np.int32,)} if "offset" in node.tensors else {}
        return dict.fromkeys(roles, _SHORT) | more

    def infer(self, node: Node, *shapes: Shape) -> Shape:
        channels = shapes[0][:1]
        for shift in integers(node, "shifts", len(self.inputs), 0):
            _expect_shift(node, shift)
        _expect_bounds(node)
        for role in self.tensors_of(node):
            expect_tensor(node, role, (1,), channels)
        for role in set(node.tensors) - {"offset"}:
            _expect_short(node, role)
        offset = np.abs(node.tensors.get("offset", np.zeros(1)).astype(np.int64)).max()
        reach = sum(reach_of(node, i) for i in range(len(self.inputs)))
        if offset > MOST_OFFSET or offset + reach >= SUM_LIMIT:
            raise bad(node, f"an offset within {MOST_OFFSET} and sums that 32 bits hold", str(offset + reach))
        return shapes[0]

    def reference(self, node: Node, *xs: Array) -> Float:
        return _real(weighed(node, *map(_exact, xs)))

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        bounds = {end: node.attributes[end] for end in ("lower", "upper")}
        tensors = {role: tensor.astype(np.int32) for role, tensor in node.tensors.items()}
        given = {} if buffer is None else {"buffer": buffer}
        return Instruction.of("weigh", shifts=node.attributes["shifts"], **bounds, **tensors, **given)


class WeighTwo(Weigh):
    """The sum of two values, each weighed; the second may have one pixel, which is for all."""

    inputs = (NUMBER, NUMBER)
    commutes = False

    def infer(self, node: Node, *shapes: Shape) -> Shape:
        x, y = shapes
        if y not in (x, (*x[:1], *[1] * (len(x) - 1))):
            raise bad(node, "a second input of the first one's shape, or one value per channel", f"{x}, {y}")
        return super().infer(node, *shapes)


class Bend(_Integer, Pixelwise):
    """A PReLU of a stream."""

    attributes = ("shift",)
    tensors = {"slope": _SHORT}

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_tensor(node, "slope", (1,), x[:1])
        _expect_shift(node, node.attributes["shift"])
        _expect_short(node, "slope")
        return x

    def reference(self, node: Node, x: Float) -> Float:
        return _real(bent(node, _exact(x)))

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        slope = node.tensors["slope"].astype(np.int32)
        return Instruction.of("bend", slope=slope, shift=node.attributes["shift"])


class IntegerAvgPool2d(_Integer, AvgPool2d):
    kind = "integer_avg_pool"

    def infer(self, node: Node, x: Shape) -> Shape:
        shape = super().infer(node, x)
        if len(x) != 3 or prod(node.attributes["kernel"]) > MOST_POOLED:
            raise bad(node, f"a mean of at most {MOST_POOLED} values of one map", str(x))
        return shape

    def reference(self, node: Node, x: Float) -> Float:
        return _real(pooled(node, _exact(x)))


class IntegerGlobalAvgPool(IntegerAvgPool2d):
    """The mean of each channel: one window as large as the map."""

    attributes = ()

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_map(node, x)
        return super().infer(_over_all(node, x), x)

    def reference(self, node: Node, x: Float) -> Float:
        return super().reference(_over_all(node, x.shape[1:]), x)

    def rows(self, node: Node, place: Place) -> Instruction:
        return super().rows(_over_all(node, place.shapes[0]), place)


def _over_all(node: Node, x: Shape) -> Node:
    window = {"kernel": x[-2:], "stride": (1, 1), "padding": (0, 0, 0, 0), "count_include_pad": 0}
    return replace(node, attributes=window)
