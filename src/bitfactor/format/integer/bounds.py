"""The largest magnitude of each value that the weights allow: ranges without samples.

A value is bounded channel by channel, by its lowest and its highest; a mover of elements sees whole maps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.image_spec import InputSpec
from bitfactor.format.graph import Graph
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.convolution import real_weight, terms_of
from bitfactor.format.operations.operation import spread

Bound = tuple[NDArray[np.float64], NDArray[np.float64]]  # the lowest and the highest of each channel, (C,)


def magnitudes(graph: Graph, spec: InputSpec) -> Mapping[str, float]:
    """Return the largest magnitude of each real value of `graph` on any image of `spec`."""
    mean, std = np.array(spec.mean), np.array(spec.std)
    bounds: dict[str, Bound] = {graph.input.name: (-mean / std, (1 - mean) / std)}
    for node in graph.nodes:
        value = graph.values[node.name]
        if value.dtype == "bit":
            continue
        shapes = [graph.values[name].shape for name in node.inputs]
        if value.dtype == "int32":
            most = np.full(value.shape[0], float(terms_of(node, shapes[0])))
            bounds[node.name] = (-most, most)
        else:
            bounds[node.name] = _BOUNDS.get(node.op, _moved)(
                node, shapes, *(bounds[name] for name in node.inputs)
            )
    return {name: float(max(np.abs(low).max(), np.abs(high).max())) for name, (low, high) in bounds.items()}


def _layer(node: Node, _: Any, x: Bound) -> Bound:
    """A tap outside the map is 0."""
    weight = real_weight(node).astype(np.float64)
    weight = weight.reshape(len(weight), -1, weight.shape[-1])
    groups, lowest, highest = int(node.attributes.get("groups", 1)), np.minimum(x[0], 0), np.maximum(x[1], 0)
    own = np.arange(len(weight)) // (len(weight) // groups)
    low, high = (end.reshape(groups, 1, -1)[own] for end in (lowest, highest))
    bias = node.tensors["bias"].astype(np.float64)
    ends = (np.where(weight > 0, a, b) for a, b in ((low, high), (high, low)))
    least, most = (_summed(weight * end) + bias for end in ends)
    return least, most


def _summed(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of each output's products, one behind the other: the same bits on every machine."""
    total: NDArray[np.float64] = np.cumsum(products.reshape(len(products), -1), 1)[:, -1]
    return total


def _times(x: Bound, factor: NDArray[Any]) -> Bound:
    a, b = (spread(end, factor.ndim) * factor for end in x)
    return np.minimum(a, b), np.maximum(a, b)


def _of_channels(low: NDArray[Any], high: NDArray[Any]) -> Bound:
    rows = len(low)
    return low.reshape(rows, -1).min(1), high.reshape(rows, -1).max(1)


def _scale(node: Node, _: Any, x: Bound) -> Bound:
    return _of_channels(*_times(x, node.tensors["alpha"].astype(np.float64)))


def _affine(node: Node, _: Any, x: Bound) -> Bound:
    low, high = _times(x, node.tensors["scale"].astype(np.float64))
    shift = node.tensors["shift"].astype(np.float64)
    return _of_channels(low + shift, high + shift)


def _prelu(node: Node, _: Any, x: Bound) -> Bound:
    slope = node.tensors["slope"].astype(np.float64)
    ends = [np.where(end > 0, end, slope * end) for end in x]
    inside = (x[0] < 0) & (x[1] > 0)
    ends.append(np.where(inside, 0.0, ends[0]))
    return np.min(ends, 0), np.max(ends, 0)


def _relu(node: Node, _: Any, x: Bound) -> Bound:
    return np.maximum(x[0], 0), np.maximum(x[1], 0)


def _clip(node: Node, _: Any, x: Bound) -> Bound:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    return np.clip(x[0], lower, upper), np.clip(x[1], lower, upper)


def _add(node: Node, _: Any, x: Bound, y: Bound) -> Bound:
    return x[0] + y[0], x[1] + y[1]


def _pool(node: Node, _: Any, x: Bound) -> Bound:
    """A mean over taps outside, too, is nearer to 0."""
    if node.op == "avg_pool2d" and node.attributes["count_include_pad"] and any(node.attributes["padding"]):
        return np.minimum(x[0], 0), np.maximum(x[1], 0)
    return x


def _moved(node: Node, shapes: list[tuple[int, ...]], *xs: Bound) -> Bound:
    def end(i: int) -> NDArray[Any]:
        maps = (np.broadcast_to(spread(x[i], len(shape)), shape) for x, shape in zip(xs, shapes, strict=True))
        return np.asarray(OPERATIONS[node.op].reference(node, *(one[None] for one in maps))[0])

    return _of_channels(end(0), end(1))


_BOUNDS: dict[str, Callable[..., Bound]] = {
    "conv2d": _layer,
    "linear": _layer,
    "scale": _scale,
    "affine": _affine,
    "prelu": _prelu,
    "relu": _relu,
    "clip": _clip,
    "add": _add,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_avg_pool": _pool,
}
