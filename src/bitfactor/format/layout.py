"""Where the operations of a graph stand in its drawing, and how the values run between them.

Operations that follow one another, each the only reader of the one before, make one card; top to bottom, a
card stands below all that it reads. The longest path is the first lane; every branch takes the nearest lane
right of where it begins that is free for as long as it lasts, short ones first, so that branches nest.
A value that would run through the cards of a lane takes a track at the lane's side.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from bitfactor.format.graph import Graph

ROW, TITLE, WIDTH = 20, 22, 350
_GAP, _TRACK, _MARGIN = 26, 10, 16
_T = TypeVar("_T")
Edge = tuple[int, int]


@dataclass(frozen=True)
class Card:
    """Operations in one column: the values they give, what the first reads, and the prefix of their names.

    The input is a card of one row, an output one of no rows, whose title says so.
    """

    rows: tuple[str, ...]
    reads: tuple[str, ...]
    title: str

    @property
    def height(self) -> int:
        return ROW * len(self.rows) + (TITLE if self.title else 0)


@dataclass(frozen=True)
class Box:
    """A card in its place, in pixels."""

    card: Card
    lane: int
    x: int
    y: int

    @property
    def right(self) -> int:
        return self.x + WIDTH

    @property
    def middle(self) -> int:
        return self.x + WIDTH // 2

    @property
    def bottom(self) -> int:
        return self.y + self.card.height

    @property
    def first_row(self) -> int:
        return self.y + (TITLE if self.card.title else 0)

    @property
    def entry(self) -> int:
        """Height at which lines arrive at the side."""
        return self.first_row + 7

    @property
    def exit(self) -> int:
        """Height at which lines leave at the side."""
        return self.bottom - 5


@dataclass(frozen=True)
class Line:
    """The way of a value from card to card, as corners."""

    value: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layout:
    """All boxes and lines, and the size of the whole."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int


@dataclass(frozen=True)
class _Span(Generic[_T]):
    """Something that lasts from one height to another, in one place or several beside each other."""

    what: _T
    top: int
    bottom: int
    width: int = 1


def layout(graph: Graph) -> Layout:
    """Arrange `graph`; the same graph gives the same layout.

    Example
    -------
    >>> layout(load("net.safetensors").graph).boxes[0].card.rows
    ('input',)
    """
    cards = _cards(graph)
    edges = _edges(cards)
    tops = _tops(cards, edges)
    lanes = _lanes(cards, edges, tops)
    boxes = [Box(card, lane, 0, top) for card, lane, top in zip(cards, lanes, tops, strict=True)]
    tracks = _tracks(boxes, edges)
    lefts = _lefts(boxes, tracks)
    boxes = [replace(box, x=lefts[box.lane]) for box in boxes]
    height = max(box.bottom for box in boxes) + _MARGIN
    return Layout(tuple(boxes), tuple(_lines(boxes, edges, tracks)), lefts[-1], height)


def _cards(graph: Graph) -> list[Card]:
    """Return the cards in an order in which each stands behind those that it reads."""
    readers = Counter(name for node in graph.nodes for name in dict.fromkeys(node.inputs))
    readers.update(graph.outputs)
    chains: list[list[str]] = []
    chain_of: dict[str, list[str]] = {}
    reads: list[tuple[str, ...]] = []
    for node in graph.nodes:
        inputs = tuple(dict.fromkeys(node.inputs))
        if len(inputs) == 1 and readers[inputs[0]] == 1 and inputs[0] in chain_of:
            chain = chain_of[inputs[0]]
        else:
            chain = []
            chains.append(chain)
            reads.append(inputs)
        chain.append(node.name)
        chain_of[node.name] = chain
    middle = (Card(tuple(rows), of, _prefix(rows)) for rows, of in zip(chains, reads, strict=True))
    ends = (Card((), (name,), "output") for name in graph.outputs)
    return [*(Card((value.name,), (), "") for value in graph.inputs), *middle, *ends]


def _prefix(names: Sequence[str]) -> str:
    """Return the path that all dotted names begin with; none for a single name."""
    common: list[str] = []
    for parts in zip(*(name.split(".") for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common) if len(names) > 1 else ""


def _edges(cards: Sequence[Card]) -> list[Edge]:
    """Return (giver, reader) for every value that goes from card to card."""
    giver = {name: i for i, card in enumerate(cards) for name in card.rows}
    return [(giver[name], i) for i, card in enumerate(cards) for name in card.reads]


def _before(edges: Iterable[Edge]) -> dict[int, list[int]]:
    before: dict[int, list[int]] = {}
    for giver, reader in edges:
        before.setdefault(reader, []).append(giver)
    return before


def _tops(cards: Sequence[Card], edges: Sequence[Edge]) -> list[int]:
    """Put every card as high as it can stand."""
    before = _before(edges)
    tops: list[int] = []
    for i in range(len(cards)):
        tops.append(max((tops[j] + cards[j].height + _GAP for j in before.get(i, ())), default=_MARGIN))
    return tops


def _lanes(cards: Sequence[Card], edges: Sequence[Edge], tops: Sequence[int]) -> list[int]:
    """Give every path a lane right of the path that it comes from, with room for those that come from it.

    One that comes from none, such as another input or a constant, takes a lane right of the first.
    """
    paths = _paths(cards, edges)
    home = {card: i for i, path in enumerate(paths) for card in path}
    parents = dict.fromkeys(range(1, len(paths)), 0)
    parents |= {home[reader]: home[giver] for giver, reader in edges if paths[home[reader]][0] == reader}
    inside: dict[int, list[_Span[int]]] = {}
    offsets: dict[int, int] = {}
    for i in reversed(range(len(paths))):
        numbered = _without_overlap(inside.get(i, []))
        offsets.update({span.what: offset + 1 for span, offset in numbered})
        width = 1 + max((offset + span.width for span, offset in numbered), default=0)
        if i:
            ends = [edge for edge in edges if i in (home[edge[0]], home[edge[1]])]
            top = min([tops[paths[i][0]], *(tops[giver] + cards[giver].height for giver, _ in ends)])
            bottom = max(tops[card] + cards[card].height for card in (*paths[i], *(edge[1] for edge in ends)))
            inside.setdefault(parents[i], []).append(_Span(i, top, bottom, width))
    lanes = {0: 0}
    for i in range(1, len(paths)):
        lanes[i] = lanes[parents[i]] + offsets[i]
    return [lanes[home[card]] for card in range(len(cards))]


def _paths(cards: Sequence[Card], edges: Sequence[Edge]) -> list[list[int]]:
    """Split the cards into paths: the longest, the longest of what is left, and so on.

    A path begins with a card that reads of earlier paths alone, or nothing.
    """
    before = _before(edges)
    remaining = dict.fromkeys(range(len(cards)))
    paths = []
    while remaining:
        length: dict[int, int] = {}
        best: dict[int, int | None] = {}
        for i in remaining:
            best[i] = max(
                (j for j in before.get(i, ()) if j in remaining), key=length.__getitem__, default=None
            )
            previous = best[i]
            length[i] = cards[i].height + _GAP + (0 if previous is None else length[previous])
        path: list[int] = []
        end: int | None = max(remaining, key=length.__getitem__)
        while end is not None:
            path.insert(0, end)
            del remaining[end]
            end = best[end]
        paths.append(path)
    return paths


def _without_overlap(spans: Iterable[_Span[_T]]) -> list[tuple[_Span[_T], int]]:
    """Number the spans, the shortest first, each with the smallest number that is free while it lasts.

    A span of a width takes that number and the following ones.
    """
    numbered: list[tuple[_Span[_T], int]] = []
    for span in sorted(spans, key=lambda span: span.bottom - span.top):
        beside = [(o, n) for o, n in numbered if span.top < o.bottom and o.top < span.bottom]
        number = 0
        while any(number < n + o.width and n < number + span.width for o, n in beside):
            number += 1
        numbered.append((span, number))
    return numbered


def _tracks(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[Edge, int]:
    """Give a track to every value that would run through the cards of the lane in which it goes down."""
    spans: dict[int, list[_Span[Edge]]] = {}
    for giver, reader in edges:
        start, end = boxes[giver], boxes[reader]
        lane = max(start.lane, end.lane)
        others = (box for box in boxes if box.lane == lane and box not in (start, end))
        if any(box.y < end.entry and start.exit < box.bottom for box in others):
            spans.setdefault(lane, []).append(_Span((giver, reader), start.exit, end.entry))
    numbered = (entry for lane in spans.values() for entry in _without_overlap(lane))
    return {span.what: track for span, track in numbered}


def _lefts(boxes: Sequence[Box], tracks: Mapping[Edge, int]) -> list[int]:
    """Return the left side of every lane, and of what would be the next."""
    sides = Counter[int]()
    for (giver, reader), track in tracks.items():
        lane = max(boxes[giver].lane, boxes[reader].lane)
        sides[lane] = max(sides[lane], track + 1)
    lefts = [_MARGIN]
    for lane in range(max(box.lane for box in boxes) + 1):
        lefts.append(lefts[lane] + WIDTH + _GAP + _TRACK * sides[lane])
    return lefts


def _lines(boxes: Sequence[Box], edges: Sequence[Edge], tracks: Mapping[Edge, int]) -> Iterable[Line]:
    """Draw each value: straight down, out at the side, or both; what arrives at one side fans out."""
    sideways = [edge for edge in edges if edge in tracks or boxes[edge[0]].lane > boxes[edge[1]].lane]
    arriving = Counter(reader for _, reader in sideways)
    arrived = Counter[int]()
    for giver, reader in edges:
        start, end = boxes[giver], boxes[reader]
        value, out = start.card.rows[-1], start.exit
        if (giver, reader) in sideways:
            entry = end.entry + 2 * (2 * arrived[reader] - arriving[reader] + 1)
            arrived[reader] += 1
            if (giver, reader) in tracks:
                x = max(start.right, end.right) + _TRACK * (tracks[giver, reader] + 1) + 4
                yield Line(value, ((start.right, out), (x, out), (x, entry), (end.right, entry)))
            else:
                yield Line(value, ((start.middle, start.bottom), (start.middle, entry), (end.right, entry)))
        elif start.lane < end.lane:
            yield Line(value, ((start.right, out), (end.middle, out), (end.middle, end.y)))
        else:
            yield Line(value, ((start.middle, start.bottom), (end.middle, end.y)))
