"""Where the operations of a graph stand in its drawing, and how the values run between them.

Operations that follow one another, each the only reader of the one before, make one card; top to bottom, a
card stands below all that it reads. The longest path is the first lane; every branch beside it takes the
nearest lane that is free for as long as the branch lasts, short ones first, so that nested branches nest.
A value that skips cards of its own lane runs in a track at the lane's side.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bitfactor.format.graph import Graph

ROW, TITLE, WIDTH = 20, 22, 350
_GAP, _PORT, _TRACK, _MARGIN = 26, 9, 9, 16
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
    """Something that lasts from one height to another."""

    what: _T
    top: int
    bottom: int


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
    tracks = _tracks(cards, edges, tops, lanes)
    sides = Counter[int]()
    for (_, reader), track in tracks.items():
        sides[lanes[reader]] = max(sides[lanes[reader]], track + 1)
    lefts = [_MARGIN]
    for lane in range(max(lanes) + 1):
        lefts.append(lefts[lane] + WIDTH + _GAP + _TRACK * sides[lane])
    boxes = tuple(
        Box(card, lane, lefts[lane], top) for card, lane, top in zip(cards, lanes, tops, strict=True)
    )
    height = max(box.bottom for box in boxes) + _MARGIN
    return Layout(boxes, tuple(_lines(boxes, edges, tracks)), lefts[-1], height)


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
    return [Card((graph.input.name,), (), ""), *middle, *ends]


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
    left = list(range(len(cards)))
    first, *branches = _paths(left, cards, edges)
    spans = []
    for path in branches:
        own = set(path)
        starts = [tops[i] + cards[i].height for i, j in edges if j in own and i not in own]
        ends = [tops[j] + cards[j].height for i, j in edges if i in own and j not in own]
        bottom = max((tops[i] + cards[i].height for i in path), default=0)
        spans.append(_Span(path, min(starts, default=tops[path[0]]), max(ends, default=bottom)))
    lanes = dict.fromkeys(first, 0)
    for span, lane in _without_overlap(spans):
        lanes.update(dict.fromkeys(span.what, lane + 1))
    return [lanes[i] for i in left]


def _paths(left: Sequence[int], cards: Sequence[Card], edges: Sequence[Edge]) -> list[list[int]]:
    """Split the cards into paths: the longest, the longest of what is left, and so on."""
    before = _before(edges)
    remaining = dict.fromkeys(left)
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
    """Number the spans, the shortest first, each with the smallest number whose spans it does not touch."""
    numbered: list[tuple[_Span[_T], int]] = []
    for span in sorted(spans, key=lambda span: span.bottom - span.top):
        taken = {n for other, n in numbered if span.top < other.bottom and other.top < span.bottom}
        numbered.append((span, next(n for n in range(len(taken) + 1) if n not in taken)))
    return numbered


def _tracks(
    cards: Sequence[Card], edges: Sequence[Edge], tops: Sequence[int], lanes: Sequence[int]
) -> dict[Edge, int]:
    """Give a track to every value that passes cards of its own lane."""
    tracks: dict[Edge, int] = {}
    for lane in range(max(lanes) + 1):
        spans = []
        for giver, reader in edges:
            if lanes[giver] == lanes[reader] == lane:
                span = _Span((giver, reader), tops[giver] + cards[giver].height, tops[reader])
                if any(lanes[i] == lane and span.top < top < span.bottom for i, top in enumerate(tops)):
                    spans.append(span)
        tracks.update({span.what: track for span, track in _without_overlap(spans)})
    return tracks


def _lines(boxes: Sequence[Box], edges: Sequence[Edge], tracks: Mapping[Edge, int]) -> Iterable[Line]:
    """Draw each value: straight down, out at the side, or both; at the side, a card's readings fan out."""
    sideways = [edge for edge in edges if edge in tracks or boxes[edge[0]].lane > boxes[edge[1]].lane]
    arriving = Counter(reader for _, reader in sideways)
    arrived = Counter[int]()
    for giver, reader in edges:
        start, end = boxes[giver], boxes[reader]
        value, out = start.card.rows[-1], start.bottom - _PORT
        if (giver, reader) in sideways:
            offset = (2 * arrived[reader] - arriving[reader] + 1) * _PORT // 2
            entry = end.y + end.card.height // 2 + offset
            arrived[reader] += 1
            if (giver, reader) in tracks:
                x = start.right + _TRACK * (tracks[giver, reader] + 1)
                yield Line(value, ((start.right, out), (x, out), (x, entry), (end.right, entry)))
            else:
                yield Line(value, ((start.middle, start.bottom), (start.middle, entry), (end.right, entry)))
        elif start.lane < end.lane:
            yield Line(value, ((start.right, out), (end.middle, out), (end.middle, end.y)))
        else:
            yield Line(value, ((start.middle, start.bottom), (end.middle, end.y)))
