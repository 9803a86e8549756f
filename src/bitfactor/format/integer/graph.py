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
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.image_spec import InputSpec
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.integer import (
    LARGEST,
    PIXEL,
    Integers,
    accumulated,
    bent,
    by_channel,
    pooled,
    quantised,
    rescaled,
    sums_of_products,
    weighed,
)
from bitfactor.format.operations.operation import Shape, pad, spread

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

    def levels(self) -> tuple[NDArray[np.float32], NDArray[np.float32], int, int]:
        """Return what makes integers of the inputs: factor and offset of each channel, and the bounds."""
        channels = self.values[self.input].shape[0]
        if self.spec is None:
            factor = np.full(channels, 1 / self.values[self.input].scale, np.float32)
            return factor, np.zeros(channels, np.float32), -LARGEST, LARGEST
        mean, std = (np.array(part) for part in (self.spec.mean, self.spec.std))
        return (255 * std).astype(np.float32), (255 * mean - PIXEL).astype(np.float32), -PIXEL, PIXEL - 1

    def of_input(self, x: NDArray[np.float32]) -> Integers:
        """Return prepared inputs (N, ...) as integers."""
        factor, offset, lower, upper = self.levels()
        factor, offset = (spread(part.astype(np.float64), x.ndim - 1) for part in (factor, offset))
        return quantised(x, factor, offset, lower, upper)

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


def _as_map(node: Node, x: Integers) -> Integers:
    """(N, F, ...) -> (N, F, pixels, 1) where a layer is over single pixels."""
    return x.reshape(len(x), x.shape[1], -1, 1) if node.attributes["pixels"] else x


def _shaped_like(node: Node, given: Integers, y: Integers) -> Integers:
    return y.reshape(len(y), y.shape[1], *given.shape[2:]) if node.attributes["pixels"] else y


def _conv(node: Node, given: Integers) -> Integers:
    a = accumulated(node, _as_map(node, given), node.tensors["weight"])
    return _shaped_like(node, given, rescaled(node, a) if "multiplier" in node.tensors else a)


def _binary_conv(node: Node, given: Integers) -> Integers:
    padded = pad(_as_map(node, given), node, node.attributes["pad_value"])
    return _shaped_like(node, given, sums_of_products(node, padded, node.tensors["weight"]))


def _threshold(node: Node, x: Integers) -> Integers:
    return np.where(by_channel(node, "direction", x) * x > by_channel(node, "threshold", x), 1, -1)


def _moved(node: Node, *xs: Integers) -> Integers:
    """Integers of 32 bits are exact in float64, for which the reference is written."""
    moved = OPERATIONS[node.op].reference(node, *(x.astype(np.float64) for x in xs))
    return np.asarray(moved).astype(np.int64)


_REFERENCES: dict[str, Callable[..., Integers]] = {
    "conv": _conv,
    "binary_conv": _binary_conv,
    "weigh": weighed,
    "prelu": bent,
    "threshold": _threshold,
    "avg_pool2d": pooled,
}
