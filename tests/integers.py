"""The reference that runs a network of integer operations in numpy, before it is a program."""

from collections.abc import Callable

import numpy as np

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.integer import (
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
from bitfactor.format.operations.operation import pad, spread


def of_input(graph: IntegerGraph, x: np.ndarray) -> Integers:
    """Return prepared inputs (N, ...) as integers."""
    factor, offset, lower, upper = graph.levels()
    factor, offset = (spread(part.astype(np.float64), x.ndim - 1) for part in (factor, offset))
    return quantised(x, factor, offset, lower, upper)


def of_output(graph: IntegerGraph, y: Integers, index: int = 0) -> np.ndarray:
    """Return an output as the real numbers that it stands for."""
    return (y * graph.values[graph.outputs[index]].scale).astype(np.float32)


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
