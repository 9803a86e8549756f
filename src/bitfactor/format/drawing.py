"""A network drawn as SVG: its operations top to bottom, those of 1 bit in blue, real weights in orange.

Operations that follow one another, each the only reader of the one before, make one panel. A panel stands
below all that it reads. The longest path is the first lane. Every branch takes the nearest lane to the right
that is free for as long as it lasts. Short ones come first, so that branches nest. A value that would run
through the panels of a lane takes a track at the lane's side.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar
from xml.etree import ElementTree

from bitfactor.common.checks import checked
from bitfactor.format.graph import Graph, cost, total
from bitfactor.format.model import ModelFile
from bitfactor.format.operations import Node

ROW, TITLE, WIDTH = 20, 22, 350
_GAP, _TRACK, _MARGIN = 26, 10, 16
_T = TypeVar("_T")
Edge = tuple[int, int]


@dataclass(frozen=True)
class Panel:
    """Operations in one column: the values they give, what the first reads, and the prefix of their names.

    The input is a panel of one row, an output one of no rows, whose title says so.
    """

    rows: tuple[str, ...]
    reads: tuple[str, ...]
    title: str

    @property
    def height(self) -> int:
        return ROW * len(self.rows) + (TITLE if self.title else 0)


@dataclass(frozen=True)
class Box:
    """A panel in its place, in pixels."""

    panel: Panel
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
        return self.y + self.panel.height

    @property
    def first_row(self) -> int:
        return self.y + (TITLE if self.panel.title else 0)

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
    """The way of a value from panel to panel, as corners."""

    value: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Drawing:
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


def layout(graph: Graph) -> Drawing:
    """Arrange `graph`; the same graph gives the same layout."""
    panels = _panels(graph)
    edges = _edges(panels)
    tops = _tops(panels, edges)
    lanes = _lanes(panels, edges, tops)
    boxes = [Box(panel, lane, 0, top) for panel, lane, top in zip(panels, lanes, tops, strict=True)]
    tracks = _tracks(boxes, edges)
    lefts = _lefts(boxes, tracks)
    boxes = [replace(box, x=lefts[box.lane]) for box in boxes]
    height = max(box.bottom for box in boxes) + _MARGIN
    return Drawing(tuple(boxes), tuple(_lines(boxes, edges, tracks)), lefts[-1], height)


def _panels(graph: Graph) -> list[Panel]:
    """Return the panels in an order in which each stands behind those that it reads."""
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
    middle = (Panel(tuple(rows), of, _prefix(rows)) for rows, of in zip(chains, reads, strict=True))
    ends = (Panel((), (name,), "output") for name in graph.outputs)
    return [*(Panel((value.name,), (), "") for value in graph.inputs), *middle, *ends]


def _prefix(names: Sequence[str]) -> str:
    """Return the path that all dotted names begin with; none for a single name."""
    common: list[str] = []
    for parts in zip(*(name.split(".") for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common) if len(names) > 1 else ""


def _edges(panels: Sequence[Panel]) -> list[Edge]:
    """Return (giver, reader) for every value that goes from panel to panel."""
    giver = {name: i for i, panel in enumerate(panels) for name in panel.rows}
    return [(giver[name], i) for i, panel in enumerate(panels) for name in panel.reads]


def _before(edges: Iterable[Edge]) -> dict[int, list[int]]:
    before: dict[int, list[int]] = {}
    for giver, reader in edges:
        before.setdefault(reader, []).append(giver)
    return before


def _tops(panels: Sequence[Panel], edges: Sequence[Edge]) -> list[int]:
    """Put every panel as high as it can stand."""
    before = _before(edges)
    tops: list[int] = []
    for i in range(len(panels)):
        tops.append(max((tops[j] + panels[j].height + _GAP for j in before.get(i, ())), default=_MARGIN))
    return tops


def _lanes(panels: Sequence[Panel], edges: Sequence[Edge], tops: Sequence[int]) -> list[int]:
    """Give every path a lane right of the path that it comes from, with room for those that come from it.

    One that comes from none, such as another input or a constant, takes a lane right of the first.
    """
    paths = _paths(panels, edges)
    home = {panel: i for i, path in enumerate(paths) for panel in path}
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
            top = min([tops[paths[i][0]], *(tops[giver] + panels[giver].height for giver, _ in ends)])
            bottom = max(
                tops[panel] + panels[panel].height for panel in (*paths[i], *(edge[1] for edge in ends))
            )
            inside.setdefault(parents[i], []).append(_Span(i, top, bottom, width))
    lanes = {0: 0}
    for i in range(1, len(paths)):
        lanes[i] = lanes[parents[i]] + offsets[i]
    return [lanes[home[panel]] for panel in range(len(panels))]


def _paths(panels: Sequence[Panel], edges: Sequence[Edge]) -> list[list[int]]:
    """Split the panels into paths: the longest, the longest of what is left, and so on.

    A path begins with a panel that reads of earlier paths alone, or nothing.
    """
    before = _before(edges)
    remaining = dict.fromkeys(range(len(panels)))
    paths = []
    while remaining:
        length: dict[int, int] = {}
        best: dict[int, int | None] = {}
        for i in remaining:
            best[i] = max(
                (j for j in before.get(i, ()) if j in remaining), key=length.__getitem__, default=None
            )
            previous = best[i]
            length[i] = panels[i].height + _GAP + (0 if previous is None else length[previous])
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
    """Give a track to every value that would run through the panels of the lane in which it goes down."""
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
        value, out = start.panel.rows[-1], start.exit
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


_HEAD = 88
_RADIUS = 7
_LETTERS = 46  # that fit in a row
_KINDS = {"bit": "signs", "int32": "sums", "float32": "real numbers"}
_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933 }
.page { fill: #ffffff } .panel { fill: #ffffff; stroke: #c5ced8 } .title { font-weight: 600 }
.head { font-size: 16px; font-weight: 600 } .small, .name { fill: #66788a } .shape { text-anchor: end }
.row { fill: #ffffff } .binary { fill: #e3edfd } .real { fill: #fdeedb } .mark { fill: #d5dce4 }
.mark-binary { fill: #2f6fde } .mark-real { fill: #e08a1e }
.bit { fill: #2458b8 } .int32 { fill: #7048b6 } .float32 { fill: #66788a }
.line-float32, .line-int32, .line-bit { fill: none; stroke-width: 1.6 }
.line-float32 { stroke: #7b8794 } .line-int32 { stroke: #7048b6 }
.line-bit { stroke: #2f6fde }
"""


@checked
def svg(model: ModelFile, title: str) -> str:
    """Draw the graph of `model` under `title`; the same model gives the same text.

    A row is an operation and the shape that it gives, coloured as it is a sign, a sum or a real number. Held
    over a row, the pointer shows its name, tensors and multiply-accumulates.
    """
    places = layout(model.graph)
    width, height = max(places.width, 2 * WIDTH), places.height + _HEAD
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    ElementTree.SubElement(root, "title").text = _printable(title)
    ElementTree.SubElement(root, "metadata").text = "bitfactor"  # whose file it is, see expect_output
    ElementTree.SubElement(root, "style").text = _STYLE
    _rectangle(root, "page", 0, 0, width, height)
    definitions = ElementTree.SubElement(root, "defs")
    for kind in _KINDS:
        _arrow_head(definitions, kind)
    _head(root, model, title)
    body = ElementTree.SubElement(root, "g", {"transform": f"translate(0 {_HEAD})"})
    _network(body, model.graph, places)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _head(root: ElementTree.Element, model: ModelFile, title: str) -> None:
    cost_of_all = total(model.graph)
    size = cost_of_all.binary_bytes + cost_of_all.real_bytes
    _text(root, "head", 16, 30, title)
    numbers = (
        f"{len(model.graph.nodes)} operations, {size:,} bytes of tensors, "
        f"{cost_of_all.binary_macs:,} multiply-accumulates of 1 bit and {cost_of_all.real_macs:,} real"
    )
    _text(root, "small", 16, 50, numbers)
    x = 16
    for kind, label in (("binary", "1-bit weights"), ("real", "real weights"), ("row", "no weights")):
        _rectangle(root, kind, x, 62, 22, 14)
        _rectangle(root, f"mark-{kind}" if kind != "row" else "mark", x, 62, 4, 14)
        _text(root, "small", x + 28, 73, label)
        x += 122
    for kind, label in _KINDS.items():
        _path(root, Line("", ((x, 69), (x + 22, 69))), kind, "")
        _text(root, kind, x + 28, 73, label)
        x += 76


def _network(body: ElementTree.Element, graph: Graph, places: Drawing) -> None:
    nodes = {node.name: node for node in graph.nodes}
    for line in places.lines:
        value = graph.values[line.value]
        _path(body, line, value.dtype, f"{value.name}: {_shape(value.shape)}, {value.dtype}")
    for box in places.boxes:
        _rectangle(body, "panel", box.x, box.y, WIDTH, box.panel.height)
        if box.panel.title:
            text = box.panel.title if box.panel.rows else f"{box.panel.title} {box.panel.reads[0]}"
            _text(body, "title", box.x + 10, box.y + 15, _cut(text, _LETTERS))
        for i, name in enumerate(box.panel.rows):
            _row(body, graph, box, nodes.get(name), name, box.first_row + ROW * i)


def _row(body: ElementTree.Element, graph: Graph, box: Box, node: Node | None, name: str, y: int) -> None:
    value = graph.values[name]
    group = ElementTree.SubElement(body, "g")
    if node is not None:
        ElementTree.SubElement(group, "title").text = _printable(_details(node, graph))
    kind = _kind(node)
    _rectangle(group, kind or "row", box.x + 1, y, WIDTH - 2, ROW - 1)
    _rectangle(group, f"mark-{kind}" if kind else "mark", box.x + 1, y, 4, ROW - 1)
    operation, shape = _operation(node) if node is not None else "input", _shape(value.shape)
    text = _text(group, "", box.x + 12, y + 14, operation)
    own = name.removeprefix(box.panel.title).removeprefix(".")
    if own.replace("_", " ") != operation:
        span = ElementTree.SubElement(text, "tspan", {"class": "name", "dx": "8"})
        span.text = _printable(_cut(own, _LETTERS - len(operation) - len(shape)))
    _text(group, f"shape {value.dtype}", box.right - 10, y + 14, shape)


def _kind(node: Node | None) -> str:
    """Say what kind of weights an operation has: binary, real, or none."""
    if node is None or "weight" not in node.tensors:
        return ""
    return "binary" if node.op.startswith("binary") else "real"


def _operation(node: Node) -> str:
    """Return the operation's name with what tells it from others of its kind: kernel, stride, groups."""
    words = [node.op.removesuffix("2d").replace("_", " ")]
    weight = node.tensors.get("weight")
    kernel = weight.shape[1:3] if weight is not None and weight.ndim == 4 else node.attributes.get("kernel")
    if kernel:
        words.append(_shape(kernel))
    for name, plain in (("stride", 1), ("dilation", 1), ("scale", 0)):
        steps = node.attributes.get(name, (plain,))
        if set(steps) != {plain}:
            words.append(f"{name} {steps[0] if len(set(steps)) == 1 else _shape(steps)}")
    if node.attributes.get("groups", 1) != 1:
        words.append(f"groups {node.attributes['groups']}")
    return " ".join(words)


def _details(node: Node, graph: Graph) -> str:
    spent, value = cost(node, graph), graph.values[node.name]
    lines = [f"{node.name} = {node.op}({', '.join(node.inputs)})", f"{_shape(value.shape)}, {value.dtype}"]
    lines += [f"{name}: {setting}" for name, setting in sorted(node.attributes.items())]
    lines += [
        f"{role}: {tensor.dtype} {_shape(tensor.shape)}, {tensor.nbytes:,} bytes"
        for role, tensor in sorted(node.tensors.items())
    ]
    if spent.binary_macs or spent.real_macs:
        lines.append(f"{spent.binary_macs + spent.real_macs:,} multiply-accumulates")
    return "\n".join(lines)


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _cut(text: str, letters: int) -> str:
    """Shorten a text from its beginning: names of layers differ at the end."""
    return text if len(text) <= letters else f"…{text[len(text) - max(letters - 1, 1) :]}"


def _printable(text: str) -> str:
    """Replace what XML cannot hold."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def _rectangle(parent: ElementTree.Element, kind: str, x: int, y: int, width: int, height: int) -> None:
    numbers = {"x": x, "y": y, "width": width, "height": height}
    ElementTree.SubElement(
        parent, "rect", {"class": kind, **{name: str(number) for name, number in numbers.items()}}
    )


def _text(parent: ElementTree.Element, kind: str, x: int, y: int, text: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, "text", {"class": kind, "x": str(x), "y": str(y)})
    element.text = _printable(text)
    return element


def _arrow_head(definitions: ElementTree.Element, kind: str) -> None:
    place = {"viewBox": "0 0 8 8", "refX": "7", "refY": "4", "markerWidth": "8", "markerHeight": "8"}
    attributes = {"id": f"tip-{kind}", **place, "markerUnits": "userSpaceOnUse", "orient": "auto"}
    marker = ElementTree.SubElement(definitions, "marker", attributes)
    ElementTree.SubElement(marker, "path", {"class": kind, "d": "M0 0L8 4L0 8z"})


def _path(parent: ElementTree.Element, line: Line, kind: str, tip: str) -> None:
    """Draw an arrow with rounded corners; `tip` is what the pointer shows."""
    first, *corners = line.points
    steps = [f"M{first[0]} {first[1]}"]
    for before, corner, after in zip(line.points, corners, corners[1:], strict=False):
        (x, y), (u, v) = _towards(corner, before), _towards(corner, after)
        steps.append(f"L{x} {y}Q{corner[0]} {corner[1]} {u} {v}")
    steps.append(f"L{corners[-1][0]} {corners[-1][1]}")
    element = ElementTree.SubElement(parent, "path", {"class": f"line-{kind}", "d": "".join(steps)})
    element.set("marker-end", f"url(#tip-{kind})")
    if tip:
        ElementTree.SubElement(element, "title").text = _printable(tip)


def _towards(corner: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the point a radius away from the corner, or half-way where that is nearer."""
    moved = []
    for here, there in zip(corner, other, strict=True):
        reach = min(_RADIUS, abs(there - here) // 2)
        moved.append(here + (reach if there > here else -reach if there < here else 0))
    return moved[0], moved[1]
