"""A network as integer operations, and the reference that runs it in numpy.

A value is of one of five types:

- `pixel`: a byte of an image minus 128, int8;
- `bit`: signs;
- `sum`: sums of a binary layer, which fit 16 bits;
- `stream`: 16 bits, within +-32767; the real number is the scale, a power of two, times it;
- `output`: sums of the last real layer, 32 bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.image_spec import InputSpec
from bitfactor.format.integer.arithmetic import Integers, rounded, saturated
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.convolution import taps_of
from bitfactor.format.operations.operation import Shape, pad, spread, windows

Type = Literal["pixel", "bit", "sum", "stream", "output"]
MOVES = (
    "concat",
    "join",
    "upsample_nearest",
    "flatten",
    "reshape",
    "permute",
    "slice",
    "rearrange",
    "take",
    "pad",
)


@dataclass(frozen=True)
class IntegerValue:
    """A value's name, shape without the batch dimension, type, and what 1 stands for."""

    name: str
    shape: Shape
    type: Type
    scale: float = 1.0


@dataclass(frozen=True)
class IntegerGraph:
    """A network in integers: nodes in an order in which they can run, names of outputs, all values by name.

    `spec` says how an image becomes pixels; a network of other inputs has none.
    """

    input: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, IntegerValue]
    spec: InputSpec | None = None

    def of_input(self, x: NDArray[np.float32]) -> Integers:
        """Return prepared inputs (N, ...) as integers."""
        reals = x.astype(np.float64)
        if self.spec is None:
            return saturated(np.rint(reals / self.values[self.input].scale).astype(np.int64))
        mean, std = (spread(np.array(part), x.ndim - 1) for part in (self.spec.mean, self.spec.std))
        pixels = np.round((reals * std + mean) * 255, 3)  # a half that float32 has moved is one again
        return np.clip(np.rint(pixels).astype(np.int64), 0, 255) - 128

    def of_output(self, index: int, y: Integers) -> NDArray[np.float32]:
        """Return an output as the real numbers that it stands for."""
        return (y * self.values[self.outputs[index]].scale).astype(np.float32)


def run(graph: IntegerGraph, x: Integers) -> tuple[Integers, ...]:
    """Return the outputs of `graph` for integer inputs (N, ...), operation by operation."""
    values: dict[str, Integers] = {graph.input: x.astype(np.int64)}
    for node in graph.nodes:
        inputs = [values[name] for name in node.inputs]
        values[node.name] = _REFERENCES.get(node.op, _moved)(node, *inputs)
    return tuple(values[name] for name in graph.outputs)


def operand(node: Node, i: int, x: Integers) -> Integers:
    """Return what input i adds to a `weigh` node: rnd(x (x > 0 ? P : Q), k)."""
    positive, negative = (
        spread(node.tensors[f"{role}{i}"].astype(np.int64), x.ndim - 1) for role in ("positive", "negative")
    )
    return rounded(x * np.where(x > 0, positive, negative), node.attributes["shifts"][i])


def _weigh(node: Node, *xs: Integers) -> Integers:
    total: Any = sum(operand(node, i, x) for i, x in enumerate(xs))
    if "offset" in node.tensors:
        total = total + spread(node.tensors["offset"].astype(np.int64), total.ndim - 1)
    return saturated(total, node.attributes["lower"], node.attributes["upper"])


def _prelu(node: Node, x: Integers) -> Integers:
    slope = spread(node.tensors["slope"].astype(np.int64), x.ndim - 1)
    return np.where(x > 0, x, saturated(rounded(x * slope, node.attributes["shift"])))


def _as_map(node: Node, x: Integers) -> Integers:
    """(N, F, ...) -> (N, F, pixels, 1) where a layer is over single pixels."""
    return x.reshape(len(x), x.shape[1], -1, 1) if node.attributes["pixels"] else x


def _products(node: Node, padded: Integers, weight: NDArray[Any]) -> Integers:
    """Sums of products below 2^53 are exact in float64, whose product is the fast one."""
    total: Any = 0
    for window, tap in taps_of(padded.astype(np.float64), node, weight.astype(np.float64)):
        n, groups, depth, *size = window.shape
        total = total + (tap @ window.reshape(n, groups, depth, -1)).reshape(n, -1, *size)
    return np.asarray(total).astype(np.int64)


def _conv(node: Node, given: Integers) -> Integers:
    x = _as_map(node, given)
    outside = spread(node.tensors["outside"].astype(np.int64), 3)
    padded = pad(x - outside, node, 0) + outside
    a = _products(node, padded, node.tensors["weight"])
    a = a + spread(node.tensors["bias"].astype(np.int64), a.ndim - 1)
    if "multiplier" in node.tensors:
        factor = spread(node.tensors["multiplier"].astype(np.int64), a.ndim - 1)
        a = saturated(rounded(a * factor, node.attributes["shift"]))
    return _shaped_like(node, given, a)


def _binary_conv(node: Node, given: Integers) -> Integers:
    x = _as_map(node, given)
    padded = pad(x, node, node.attributes["pad_value"])
    return _shaped_like(node, given, _products(node, padded, node.tensors["weight"]))


def _shaped_like(node: Node, given: Integers, y: Integers) -> Integers:
    return y.reshape(len(y), y.shape[1], *given.shape[2:]) if node.attributes["pixels"] else y


def _threshold(node: Node, x: Integers) -> Integers:
    direction, border = (
        spread(node.tensors[role].astype(np.int64), x.ndim - 1) for role in ("direction", "threshold")
    )
    return np.where(direction * x > border, 1, -1)


def counted_taps(node: Node, x: Shape) -> Integers:
    """Return over how many values each pixel of an average pool is a mean, (1, 1, H', W')."""
    inside = np.ones((1, 1, *x[-2:]), np.int64)
    inside = (
        np.ones_like(pad(inside, node, 0)) if node.attributes["count_include_pad"] else pad(inside, node, 0)
    )
    return np.asarray(sum(windows(inside, node.attributes["kernel"], node.attributes["stride"])))


def _avg_pool(node: Node, x: Integers) -> Integers:
    kernel, stride = node.attributes["kernel"], node.attributes["stride"]
    total, n = sum(windows(pad(x, node, 0), kernel, stride)), counted_taps(node, x.shape)
    return np.asarray((2 * total + n) // (2 * n))


def _moved(node: Node, *xs: Integers) -> Integers:
    """Integers of 32 bits are exact in float64, for which the reference is written."""
    moved = OPERATIONS[node.op].reference(node, *(x.astype(np.float64) for x in xs))
    return np.asarray(moved).astype(np.int64)


_REFERENCES: dict[str, Callable[..., Integers]] = {
    "conv": _conv,
    "binary_conv": _binary_conv,
    "weigh": _weigh,
    "prelu": _prelu,
    "threshold": _threshold,
    "avg_pool2d": _avg_pool,
}
