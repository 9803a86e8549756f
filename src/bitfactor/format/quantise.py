"""Real-valued layers in fewer bits."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.graph import Graph
from bitfactor.format.operations.operation import Node

Real = Literal["float32", "float16", "int8"]

# How far a real-valued layer may be from torch, as a fraction of its largest output.
TOLERANCE: dict[str, float] = {"float32": 1e-4, "float16": 5e-3, "int8": 5e-2}


def quantise(graph: Graph, real: Real) -> Graph:
    """Store the weights of real-valued layers as `real`; all else, biases included, stays float32.

    int8 has one step per output channel: its largest magnitude becomes 127.
    """
    if real == "float32":
        return graph
    make = {"float16": _half, "int8": _int8}[real]
    nodes = (
        replace(node, tensors={**node.tensors, **make(node.tensors["weight"])})
        if is_real_layer(node)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def is_real_layer(node: Node) -> bool:
    return node.op in ("conv2d", "linear")


def _half(weight: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    largest = np.finfo(np.float16).max
    return {"weight": weight.clip(-largest, largest).astype(np.float16)}


def _int8(weight: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    largest = np.abs(weight).reshape(len(weight), -1).max(1)
    step = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    levels = np.rint(weight / step.reshape(-1, *[1] * (weight.ndim - 1)))
    return {"weight": levels.clip(-127, 127).astype(np.int8), "step": step}
