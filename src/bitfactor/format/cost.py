"""What an operation costs: multiply-accumulates, and bytes of its tensors."""

from dataclasses import dataclass

import numpy as np

from bitfactor.checks import checked
from bitfactor.format.graph import Graph
from bitfactor.format.operations import OPERATIONS, Node


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of one sample, of 1 bit by 1 bit or of real numbers; bytes of the tensors.

    `binary_bytes` are packed signs, `real_bytes` everything else: real weights, biases, scales, thresholds.
    """

    binary_macs: int = 0
    real_macs: int = 0
    binary_bytes: int = 0
    real_bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.binary_macs + other.binary_macs,
            self.real_macs + other.real_macs,
            self.binary_bytes + other.binary_bytes,
            self.real_bytes + other.real_bytes,
        )

    @property
    def binary_fraction(self) -> float:
        """Share of the multiply-accumulates that are of 1 bit; 0 where there are none."""
        return self.binary_macs / max(self.binary_macs + self.real_macs, 1)


@checked
def cost(node: Node, graph: Graph) -> Cost:
    """Return what `node` costs in `graph`. A tap on the padding counts as any other."""
    x = graph.values[node.inputs[0]].shape if node.inputs else ()
    y = graph.values[node.name].shape
    macs = OPERATIONS[node.op].macs(node, x, y)
    packed = [tensor.dtype == np.uint64 for tensor in node.tensors.values()]
    sizes = [tensor.nbytes for tensor in node.tensors.values()]
    binary_bytes = sum(size for size, is_packed in zip(sizes, packed, strict=True) if is_packed)
    return Cost(
        binary_macs=macs if any(packed) else 0,
        real_macs=0 if any(packed) else macs,
        binary_bytes=binary_bytes,
        real_bytes=sum(sizes) - binary_bytes,
    )


@checked
def total(graph: Graph) -> Cost:
    """Return what all nodes cost together."""
    return sum((cost(node, graph) for node in graph.nodes), Cost())
