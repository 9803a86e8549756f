"""Real-valued layers in 8-bit integers, by the ranges of their inputs that a file holds.

A layer's `range` is the lowest and the highest input, (2,), or those of each channel, (2, C). An input
becomes one of 256 levels, x = lowest + level * step with step = (highest - lowest) / 255. The weight times
that step is rounded to int8 with a scale per output channel, its largest magnitude becoming 127. What
`lowest` adds to an output goes into the bias. Where 0 is a level, padding is exact; where levels are those of
an 8-bit image, the input is.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.format.graph import Graph
from bitfactor.format.operations.convolution import real_weight
from bitfactor.format.operations.operation import Node, bad, spread
from bitfactor.format.operations.quantised import LARGEST, LEVELS

Real = Literal["float32", "float16", "int8"]

# How far a real-valued layer may be from torch, as a fraction of its largest output.
TOLERANCE: dict[str, float] = {"float32": 1e-4, "float16": 5e-3, "int8": 5e-2}


def quantise(graph: Graph, real: Real) -> Graph:
    """Store the weights of real-valued layers as `real`; all else, biases included, stays float32.

    int8 has one step per output channel: its largest magnitude becomes 127. Where each filter is -a and +a
    alone, it is signs with the step a, which lose nothing and are bits in a file.
    """
    graph = replace(graph, nodes=tuple(map(_with_signs, graph.nodes)))
    if real == "float32":
        return graph
    make = {"float16": _half, "int8": _int8}[real]
    nodes = (
        replace(node, tensors={**node.tensors, **make(node.tensors["weight"])})
        if is_real_layer(node) and "step" not in node.tensors
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


@dataclass(frozen=True)
class Low:
    """A float32 array in fewer bits: float16 `values`, or int8 `values` and the `steps` of the rows, (O,)."""

    values: NDArray[np.generic]
    steps: NDArray[np.float32] | None = None


def lossless(weight: NDArray[np.float32]) -> Low | None:
    """Return `weight` (O, ...) in fewer bits, None where those would give another one."""
    return _levels(weight.reshape(len(weight), -1)) or _halves(weight)


def _halves(weight: NDArray[np.float32]) -> Low | None:
    with np.errstate(over="ignore"):
        values = weight.astype(np.float16)
    same = values.astype(np.float32).tobytes() == weight.tobytes()
    return Low(values) if same and np.isfinite(values).all() else None


def _levels(rows: NDArray[np.float32]) -> Low | None:
    """The step is 1/127 of the largest magnitude, or next to that."""
    near = _step(rows)[:, None]
    steps, found = near.copy(), np.zeros(len(rows), bool)
    for step in (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))):
        same = (np.rint(rows / step).clip(-127, 127) * step == rows).all(1)
        steps[same & ~found] = step[same & ~found]
        found |= same
    saved = 3 * rows.size > 4 * len(rows)
    return Low(np.rint(rows / steps).astype(np.int8), steps[:, 0]) if found.all() and saved else None


_FEW = 8  # elements of a filter: fewer save nothing, and may be of one magnitude by chance


def _with_signs(node: Node) -> Node:
    """Return a layer whose filters each have one magnitude with signs, and that magnitude as their step."""
    if not is_real_layer(node) or node.tensors["weight"].dtype != np.float32:
        return node
    weight = node.tensors["weight"]
    rows = np.abs(weight.reshape(len(weight), -1))
    if rows.shape[1] < _FEW or (rows != rows[:, :1]).any() or not rows.all():
        return node
    signs = np.where(weight > 0, np.int8(1), np.int8(-1))
    return replace(node, tensors={**node.tensors, "weight": signs, "step": rows[:, 0].copy()})


def is_real_layer(node: Node) -> bool:
    return node.op in ("conv2d", "linear")


def _half(weight: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    largest = np.finfo(np.float16).max
    return {"weight": weight.clip(-largest, largest).astype(np.float16)}


def _step(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 1/127 of the largest magnitude of each row, 1 where all are 0."""
    largest = np.abs(rows).max(1)
    return np.where(largest > 0, largest / np.float32(LARGEST), np.float32(1)).astype(np.float32)


def _int8(weight: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    step = _step(weight.reshape(len(weight), -1))
    levels = np.rint(weight / spread(step, weight.ndim))
    return {"weight": levels.clip(-127, 127).astype(np.int8), "step": step}


QUANTISED = {"conv2d": "quantised_conv2d", "linear": "quantised_linear"}


def low_precision(graph: Graph) -> Graph:
    """Return `graph` with its real-valued convolutions and linear layers in 8-bit integers."""

    def is_meant(node: Node) -> bool:
        """One over several maps, such as the frames of a video, stays real."""
        return node.op in QUANTISED and (node.op == "linear" or len(graph.values[node.name].shape) == 3)

    return replace(graph, nodes=tuple(_quantised(node) if is_meant(node) else node for node in graph.nodes))


def _quantised(node: Node) -> Node:
    lowest, step = _input_levels(node)
    weight = real_weight(node) * step  # the last axis is that of the channels
    scale = np.abs(weight).reshape(len(weight), -1).max(1) / np.float32(LARGEST)
    scale = np.where(scale >= np.finfo(np.float32).tiny, scale, np.float32(1))
    levels = np.rint(weight / spread(scale, weight.ndim)).astype(np.int8)
    tensors = {
        "weight": levels,
        "scale": scale,
        "bias": _bias(node, levels, scale, lowest.astype(np.float64) / step),
        "lowest": lowest,
        "inverse": np.float32(1) / step,
    }
    return Node(node.name, QUANTISED[node.op], node.inputs, node.attributes, tensors)


def _input_levels(node: Node) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the lowest level and the distance of levels, (1,) or (C,)."""
    if "range" not in node.tensors:
        raise _bad(node, "none")
    lowest, highest = node.tensors["range"].reshape(2, -1)
    step = (highest - lowest) / np.float32(LEVELS)
    usable = np.isfinite(lowest) & np.isfinite(highest) & (step >= np.finfo(np.float32).tiny)
    if not usable.all():
        i = int(np.argmin(usable))
        raise _bad(node, f"{lowest[i]} to {highest[i]}")
    return lowest, step


def _bias(
    node: Node, levels: NDArray[np.int8], scale: NDArray[np.float32], offset: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the bias with what the lowest level, `offset` in steps, adds; summed in the channels' order."""
    by_channel = levels.astype(np.int64).reshape(len(levels), -1, levels.shape[-1]).sum(1)
    sums = by_channel if len(offset) > 1 else by_channel.sum(1, keepdims=True)
    shift = np.zeros(len(levels))
    for channel, lowest in enumerate(offset):
        shift += sums[:, channel] * lowest
    return (node.tensors["bias"] + shift * scale).astype(np.float32)


def _bad(node: Node, found: str) -> InputError:
    fix = "export the model with calibration=samples"
    return bad(node, "a finite range of its input, for precision 'low'", found, fix)
