"""Which nodes of an integer graph run together: what makes rows, stages that change them, chains of moves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph
from bitfactor.format.integer.graph import MOVES
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.move import stays

_OWN = ("flatten", "upsample_nearest")  # which have functions of their own
_STAGES = ("weigh", "prelu", "threshold")


@dataclass
class Layer:
    """What makes rows, a node or the loading of a value, and the stages behind it."""

    first: Node | None
    value: str
    stages: list[Node] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [*([self.first.name] if self.first else []), *(stage.name for stage in self.stages)]


def layers_of(graph: IntegerGraph) -> tuple[list[Layer], dict[str, str]]:
    """Return the layers, and for each value that is another one in another shape, that one."""
    layers: list[Layer] = []
    roots: dict[str, str] = {}
    running: dict[str, int] = {}  # values that are in the row at the end of a layer so far
    made = {graph.input: -1}

    def attached(node: Node) -> int | None:
        """The layer whose row a stage can change: what else it reads is made before that."""
        for name in node.inputs:
            at = running.get(name)
            others = [other for other in node.inputs if other != name]
            alike = graph.values[name].shape == graph.values[node.name].shape
            once = node.inputs.count(name) == 1
            if at is not None and once and alike and all(made[roots.get(o, o)] < at for o in others):
                return at
        return None

    for node in _late(graph.nodes):
        inputs = [graph.values[name].shape for name in node.inputs]
        if len(node.inputs) == 1 and stays(node, inputs[0], graph.values[node.name].shape):
            roots[node.name] = roots.get(node.inputs[0], node.inputs[0])
            continue
        at = attached(node) if node.op in _STAGES else None
        if at is None:
            loads = node.op in _STAGES
            primary = max(node.inputs, key=lambda name: prod(graph.values[name].shape))
            layers.append(
                Layer(None if loads else node, primary if loads else node.name, [node] if loads else [])
            )
            at = len(layers) - 1
        else:
            layers[at].stages.append(node)
        made[node.name] = at
        if node.op != "threshold":
            running = {name: i for name, i in running.items() if i != at} | {node.name: at}
    return layers, roots


def _late(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield binary layers where their sums are read: what is added to them is then made before."""
    waiting: dict[str, Node] = {}
    for node in nodes:
        yield from (waiting.pop(name) for name in dict.fromkeys(node.inputs) if name in waiting)
        if node.op == "binary_conv":
            waiting[node.name] = node
        else:
            yield node
    yield from waiting.values()


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
