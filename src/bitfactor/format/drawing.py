"""A network drawn as SVG: its operations top to bottom, those of 1 bit in blue, real weights in orange."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from bitfactor.checks import checked
from bitfactor.format.cost import cost, total
from bitfactor.format.file import ModelFile
from bitfactor.format.graph import Graph
from bitfactor.format.layout import ROW, WIDTH, Box, Layout, Line, layout
from bitfactor.format.operations import Node

_HEAD = 88
_RADIUS = 7
_LETTERS = 46  # that fit in a row
_KINDS = {"bit": "signs", "int32": "sums", "float32": "real numbers"}
_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933 }
.page { fill: #ffffff } .card { fill: #ffffff; stroke: #c5ced8 } .title { font-weight: 600 }
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

    Example
    -------
    >>> Path("net.svg").write_text(svg(load("net.safetensors"), "net.safetensors"))
    """
    places = layout(model.graph)
    width, height = max(places.width, 2 * WIDTH), places.height + _HEAD
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size})
    ElementTree.SubElement(root, "title").text = _printable(title)
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


def _network(body: ElementTree.Element, graph: Graph, places: Layout) -> None:
    nodes = {node.name: node for node in graph.nodes}
    for line in places.lines:
        value = graph.values[line.value]
        _path(body, line, value.dtype, f"{value.name}: {_shape(value.shape)}, {value.dtype}")
    for box in places.boxes:
        _rectangle(body, "card", box.x, box.y, WIDTH, box.card.height)
        if box.card.title:
            text = box.card.title if box.card.rows else f"{box.card.title} {box.card.reads[0]}"
            _text(body, "title", box.x + 10, box.y + 15, _cut(text, _LETTERS))
        for i, name in enumerate(box.card.rows):
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
    own = name.removeprefix(box.card.title).removeprefix(".")
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
