"""Which nodes of an integer graph run together, where values lie in the arena, and what layers need there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph, IntegerValue
from bitfactor.format.integer.graph import MOVES
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.move import stays
from bitfactor.runtime.program import Lifetime, place
from bitfactor.targets.c99.binary import EIGHT, Counting, Ending, counting, curve_of, ending

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

    for node in _late(_with_signs(graph.nodes)):
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


def _with_signs(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield thresholds behind what they read, which is then still in the row; those of sums stay."""
    made = {node.name for node in nodes if node.op != "binary_conv"}
    signs: dict[str, list[Node]] = {}
    for node in nodes:
        if node.op == "threshold" and node.inputs[0] in made:
            signs.setdefault(node.inputs[0], []).append(node)
    for node in nodes:
        if node.op != "threshold" or node.inputs[0] not in made:
            yield from (node, *signs.get(node.name, ()))


def _late(nodes: Iterable[Node]) -> Iterator[Node]:
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
    read = [name for node in graph.nodes if node.name not in moves for name in node.inputs]
    chains: dict[str, list[Node]] = {}
    for name in (needed := [*graph.outputs, *read]):
        if name in moves and name not in chains:
            chains[name] = _chain_to(moves[name], moves)
            needed.append(chains[name][0].inputs[0])

    def nodes() -> Iterator[Node]:
        for node in graph.nodes:
            if node.name not in moves:
                yield node
            elif node.name in chains:
                yield from _chained(graph, chains[node.name])

    return replace(graph, nodes=tuple(nodes()))


def _chain_to(node: Node, moves: dict[str, Node]) -> list[Node]:
    """Return the moves that end with `node`, whose pads have one value."""
    chain = [node]
    while before := moves.get(chain[0].inputs[0]):
        if len({each.attributes["value"] for each in (before, *chain) if each.op == "pad"}) > 1:
            break
        chain.insert(0, before)
    return chain


def _chained(graph: IntegerGraph, chain: list[Node]) -> Iterator[Node]:
    shapes = {name: value.shape for name, value in graph.values.items()}
    far = [each for each in chain if not stays(each, shapes[each.inputs[0]], shapes[each.name])]
    if not far or (len(far) == 1 and far[0].op in _OWN):
        yield from chain
    else:
        yield Node(chain[-1].name, "moved", chain[0].inputs, {"chain": tuple(chain)}, {})


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


class Memory:
    """The layers of a graph, what is `stored` of their values, and its places in the arena.

    A value may lie in the place of another one: `homes` says in whose. `ends` are those of rows of sums.
    """

    def __init__(self, graph: IntegerGraph) -> None:
        self.graph = with_chains(graph)
        self.layers, self.roots = layers_of(self.graph)
        self.stored = set(self._stored())
        self.ends = self._ends()
        self._lifetimes = self._places()
        self.offsets, self.arena_bytes = place(self._lifetimes)

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

    @property
    def largest(self) -> str:
        """How many bytes of the arena, where it ends, are for what takes most, and for which layer."""
        spans = self._lifetimes
        last = spans[max(spans, key=lambda name: self.offsets[name] + spans[name].size)]
        beside = [name for name in spans if spans[name].first <= last.last and last.first <= spans[name].last]
        name = max(beside, key=lambda name: spans[name].size)
        value, layer = self.graph.values.get(name), self.layers[spans[name].first].names[0]
        what = f"a map of {' x '.join(map(str, value.shape))}" if value else f"the {name.split()[-1]}"
        return f"{spans[name].size} of them are for {what} of layer {layer!r}"

    def narrowed(self, percent: int) -> int:
        """Return the arena's bytes at most if layers had so many percent of their channels, rounded up."""
        kept = {self.graph.input, *map(self.root, self.graph.outputs)}
        sizes = {name: self._bytes(name, percent) for name in self._lifetimes if name in self.graph.values}
        for layer in self.layers:
            sizes |= self._extra(layer.first, percent)
        spans = self._lifetimes.items()
        return place({n: each if n in kept else replace(each, size=sizes[n]) for n, each in spans})[1]

    def _stored(self) -> Iterator[str]:
        """Yield the values that are read from memory."""
        yield from map(self.root, self.graph.outputs)
        for layer in self.layers:
            if layer.first is None:
                yield self.root(layer.value)
            else:
                yield from map(self.root, layer.first.inputs)
            current = layer.value
            for stage in layer.stages:
                yield from (self.root(name) for name in stage.inputs if name != current)
                current = current if stage.op == "threshold" else stage.name

    def _places(self) -> dict[str, Lifetime]:
        """Return what lies in the arena; `homes` says in whose place a value is."""
        given = self.graph.input
        self.homes = {} if self.graph.values[given].type == "pixel" else {given: given}
        spans = dict.fromkeys(self.homes, (0, self._last_use(given)))
        extra: dict[str, Lifetime] = {}
        for i, layer in enumerate(self.layers):
            for name, before in self._made(i, layer):
                home = self.homes[name] = self.homes[before] if before else name
                spans[home] = (spans.get(home, (i, i))[0], self._last_use(name))
            extra |= {name: Lifetime(size, i, i) for name, size in self._extra(layer.first).items() if size}
        return {name: Lifetime(self._bytes(name), *span) for name, span in spans.items()} | extra

    def _made(self, i: int, layer: Layer) -> Iterator[tuple[str, str | None]]:
        """Yield the values that a layer stores, each with one like it whose last reader that stage is.

        A pixel is read before it is stored, so that the one may take the place of the other.
        """
        first = layer.first
        far = set(map(self.root, first.inputs)) if first else set()
        near = set() if first else {self.root(layer.value)}
        if first is not None and first.name in self.stored:
            yield first.name, self._shrunk(i, layer)
        current, taken = layer.value, set[str]()
        for k, stage in enumerate(layer.stages, 1):
            near |= {self.root(name) for name in stage.inputs if name != current}
            current = current if stage.op == "threshold" else stage.name
            if stage.name in self.stored:
                later = {self.root(name) for other in layer.stages[k:] for name in other.inputs}
                free = sorted(near - far - later - taken)
                ends = (u for u in free if u in self.homes and self._last_use(u) == i)
                like = next((u for u in ends if self._is_like(u, stage.name)), None)
                yield stage.name, like
                taken.add(like or "")

    def _shrunk(self, i: int, layer: Layer) -> str | None:
        """Return the value in whose place the layer's moves can be made, pixel by pixel."""
        node = layer.first
        if node is None or node.op != "moved" or layer.stages:
            return None
        source = self.root(node.inputs[0])
        of = places_of(self.graph, node)
        possible = of.steps(*self._size(node.name)) and of.in_place() and source in self.homes
        return source if possible and self._last_use(source) == i else None

    def _last_use(self, name: str) -> int:
        """Return the last layer that reads a value, or the number of layers for an output."""
        if name in map(self.root, self.graph.outputs):
            return len(self.layers)
        uses = [0]
        for i, layer in enumerate(self.layers):
            read = [layer.value] if layer.first is None else list(layer.first.inputs)
            read += [each for stage in layer.stages for each in stage.inputs]
            uses += [i] * (name in map(self.root, read))
        return max(uses)

    def _is_like(self, one: str, other: str) -> bool:
        a, b = self.graph.values[one], self.graph.values[other]
        return (a.shape, a.type) == (b.shape, b.type)

    def _extra(self, node: Node | None, percent: int = 100) -> dict[str, int]:
        """Return the bytes of what a layer needs: of binary ones, with the map with a border.

        With fewer `percent` of the channels it is at most so much.
        """
        if node is not None and self._has_sums(node):
            pixels = self.sees_pixels(node)
            rows = 4 * node.tensors["weight"].shape[1] * self._columns(node)[1] if pixels else 0
            return {f"{node.name} rows": rows, f"{node.name} sums": 4 * EIGHT * self._size(node.name)[1]}
        if node is None or node.op != "binary_conv":
            return {}
        (height, width), channels = self._surrounded(node), self.graph.values[node.inputs[0]].shape[0]
        channels = -(-channels * percent // 100)
        around = height * width * -(-channels // EIGHT) if any(self._border(node)) else 0
        of = self.counting(node)
        sizes = of.of_channels(channels).memory(self._size(node.name)[1]) if of else {}
        return {f"{node.name} {what}": size for what, size in {"border": around, **sizes}.items()}

    def _has_sums(self, node: Node) -> bool:
        """Whether a layer makes a row of sums before it goes on."""
        return node.op == "conv" and bool(node.attributes["groups"] == 1)

    def sees_pixels(self, node: Node) -> bool:
        return self._has_sums(node) and self.graph.values[self.root(node.inputs[0])].type == "pixel"

    def _columns(self, node: Node) -> tuple[int, int]:
        """Return the columns that windows see, by remainders of the dilation, and a row's words."""
        (_, kernel, depth), apart = node.tensors["weight"].shape[1:], node.attributes["dilation"][1]
        seen = (self._size(node.name)[1] - 1) * node.attributes["stride"][1] + (kernel - 1) * apart + 1
        columns = -(-seen // apart)
        return columns, columns * apart * depth

    def _surrounded(self, node: Node) -> tuple[int, int]:
        (height, width), border = self._size(node.inputs[0]), self._border(node)
        return height + border[0] + border[2], width + border[1] + border[3]

    def counting(self, node: Node) -> Counting | None:
        """Return how a binary layer counts its signs."""
        channels, out = self.graph.values[node.inputs[0]].shape[0], self._size(node.name)
        padding = tuple(a - b for a, b in zip(node.attributes["padding"], self._border(node), strict=True))
        return counting(node, channels, self._surrounded(node), padding, out)

    def _border(self, node: Node) -> tuple[int, ...]:
        return tuple(node.attributes["padding"]) if node.attributes["pad_value"] else (0, 0, 0, 0)

    def _bytes(self, name: str, percent: int = 100) -> int:
        value = self.graph.values[name]
        channels, pixels = -(-value.shape[0] * percent // 100), prod(value.shape[1:])
        if value.type == "bit":
            return pixels * -(-channels // EIGHT)
        return pixels * channels * (4 if value.type == "output" else 2)

    def _size(self, name: str) -> tuple[int, int]:
        return size_of(self.graph.values[name])

    def at(self, name: str) -> str:
        """Return where a value lies, as a pointer of its type."""
        root = self.root(name)
        value = self.graph.values[root]
        if value.type == "pixel":
            return "input"
        return self._pointer(
            self.homes[root], {"bit": "uint8_t", "output": "int32_t"}.get(value.type, "int16_t")
        )

    def _pointer(self, key: str, kind: str) -> str:
        if key not in self.offsets:
            return "0"
        return f"({kind} *)(arena + {self.offsets[key] // 4})"

    def _ends(self) -> dict[str, Ending]:
        """Return how the sums of binary layers go into the stream, and signs of that, if row by row."""
        found = {layer.value: end for layer in self.layers if (end := self._ending(layer))}
        shift = max((end.shift for end in found.values()), default=0)
        return {name: end.shifted(shift) for name, end in found.items()}

    def _ending(self, layer: Layer) -> Ending | None:
        node, stages = layer.first, layer.stages
        if node is None or node.op != "binary_conv" or not stages or node.name in self.stored:
            return None
        channels, weigh, of = self.graph.values[node.name].shape[0], stages[0], self.counting(node)
        if weigh.op != "weigh" or len(weigh.inputs) != 2 or of is None or channels % EIGHT:
            return None
        i, curve = weigh.inputs.index(node.name), curve_of(stages)
        streamed = self.graph.values[weigh.inputs[1 - i]].type == "stream"
        kept = {stage.name for stage in stages if stage.op != "threshold"} & self.stored
        if curve is None or not streamed or kept != {curve.last}:
            return None
        return ending(weigh, i, curve, channels, of)


def size_of(value: IntegerValue) -> tuple[int, int]:
    """Return the height and width of a value, in rows of pixels."""
    pixels = value.shape[1:]
    return (pixels[0], pixels[1]) if len(pixels) == 2 else (1, prod(pixels))
