"""Elements that only change their place: chains of such operations as one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph
from bitfactor.format.integer.graph import MOVES
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.move import stays

_OWN = ("flatten", "upsample_nearest")  # which have functions of their own


def with_chains(graph: IntegerGraph) -> IntegerGraph:
    """Return `graph` with moves of moves as one node `moved`, whose `chain` has them all."""
    moves = {node.name: node for node in graph.nodes if node.op in MOVES and len(node.inputs) == 1}
    moves = {name: node for name, node in moves.items() if graph.values[node.inputs[0]].type == "stream"}
    read = set(graph.outputs) | {
        name for node in graph.nodes if node.name not in moves for name in node.inputs
    }

    def nodes() -> Iterator[Node]:
        for node in graph.nodes:
            if node.name not in moves:
                yield node
            elif node.name in read:
                yield from _chained(graph, moves, node)

    return replace(graph, nodes=tuple(nodes()))


def _chained(graph: IntegerGraph, moves: dict[str, Node], node: Node) -> Iterator[Node]:
    chain = [node]
    while chain[0].inputs[0] in moves:
        chain.insert(0, moves[chain[0].inputs[0]])
    shapes = {name: value.shape for name, value in graph.values.items()}
    far = [each for each in chain if not stays(each, shapes[each.inputs[0]], shapes[each.name])]
    if not far or (len(far) == 1 and far[0].op in _OWN):
        yield from chain
    else:
        yield Node(node.name, "moved", chain[0].inputs, {"chain": tuple(chain)}, {})


@dataclass(frozen=True)
class Places:
    """The place of the source's memory that each element is read from, (pixels, C); -1 where it is `fill`."""

    places: NDArray[np.int32]
    fill: int

    @property
    def strided(self) -> tuple[int, int] | None:
        """Return how many channels are read, and filled before, if pixels are read whole."""
        inside = self.places[0] >= 0
        before, used = int(inside.argmax()), int(inside.sum())
        if not used:
            return None
        own = np.arange(used)
        read = self.places[:, before : before + used]
        whole = (read == read[:, :1] + own).all() and (read[:, 0] >= 0).all()
        rest = np.delete(self.places, np.s_[before : before + used], 1)
        return (used, before) if whole and (rest < 0).all() else None

    def steps(self, height: int, width: int) -> tuple[int, int, int] | None:
        """Return where the first pixel is read, and how far rows and columns are apart, if all are alike."""
        used = self.strided
        if used is None:
            return None
        first = self.places[:, used[1]].reshape(height, width)
        down = int(first[1, 0] - first[0, 0]) if height > 1 else 0
        right = int(first[0, 1] - first[0, 0]) if width > 1 else 0
        even = first[0, 0] + np.arange(height)[:, None] * down + np.arange(width) * right
        return (int(first[0, 0]), down, right) if (first == even).all() else None

    def in_place(self) -> bool:
        """Whether pixels can be moved one by one within the source's memory."""
        used = self.strided
        if used is None:
            return False
        first, channels = self.places[:, used[1]].astype(np.int64), self.places.shape[1]
        ends = (np.arange(len(first) - 1) + 1) * channels
        return bool((np.minimum.accumulate(first[::-1])[::-1][1:] >= ends).all())


def places_of(graph: IntegerGraph, node: Node) -> Places:
    """Return the places of a node `moved`."""
    shape = graph.values[node.inputs[0]].shape
    moved = np.arange(prod(shape), dtype=np.int32).reshape(-1, shape[0]).T.reshape(1, *shape)
    filled = np.zeros(moved.shape, np.float32)  # integers are padded with -1, reals with the value
    for each in node.attributes["chain"]:
        moved = OPERATIONS[each.op].reference(each, moved)
        filled = OPERATIONS[each.op].reference(each, filled)
    rows, fills = (x[0].reshape(len(x[0]), -1).T.astype(np.int32) for x in (moved, filled))
    outside_fills = fills[rows < 0]
    return Places(rows, int(outside_fills[0]) if outside_fills.size else 0)
