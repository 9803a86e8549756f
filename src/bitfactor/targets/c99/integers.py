"""The layers of an integer graph as C: functions that call those of `integers.c`.

A layer makes 8 channels of a pixel in `row`, takes them through its stages there, and stores what others
read. Values lie in one arena: 16 bits an element, or an index byte for four signs. What a layer's look-ups
need lies there, too.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph, IntegerValue
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.integer import LARGEST
from bitfactor.format.operations.move import stays
from bitfactor.runtime.program import Lifetime, place
from bitfactor.targets.c99.constants import WIDTH, Constants

_STAGES = ("weigh", "prelu", "threshold")
_BLOCK = 8  # channels that are made at a time
_QUAD = 4  # signs of an index byte
_ALIGNED = 4  # index bytes: an entry's place is its byte, of 4 bytes in turn
_ENTRIES = 16
_COUNTED = 60  # index bytes whose counts fit a byte
_TOGETHER = 4  # outputs of a real-valued layer
_PIXEL = 128


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


class IntegerLayers:
    """The C of an integer graph: `functions`, their `calls`, `constants`, and the bytes of the arena."""

    def __init__(self, graph: IntegerGraph) -> None:
        self.graph = graph
        self.layers, self.roots = layers_of(graph)
        self.constants = Constants()
        self.functions: list[str] = []
        self.calls: list[str] = []
        self.stored = set(self._stored())
        self.offsets, self.arena_bytes = place(self._places())
        for i, layer in enumerate(self.layers):
            self._write(i, layer)

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

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
            if layer.first is not None and layer.first.op == "binary_conv":
                extra |= {
                    name: Lifetime(size, i, i) for name, size in self._extra(layer.first).items() if size
                }
        return {name: Lifetime(self._bytes(name), *span) for name, span in spans.items()} | extra

    def _made(self, i: int, layer: Layer) -> Iterator[tuple[str, str | None]]:
        """Yield the values that a layer stores, each with one like it that was read before and ends there.

        A pixel is read before it is stored, so that the one may take the place of the other.
        """
        first = layer.first
        far = set(map(self.root, first.inputs)) if first else set()
        near = set() if first else {self.root(layer.value)}
        if first is not None and first.name in self.stored:
            yield first.name, None
        current = layer.value
        for stage in layer.stages:
            near |= {self.root(name) for name in stage.inputs if name != current}
            current = current if stage.op == "threshold" else stage.name
            if stage.name in self.stored:
                ends = (u for u in sorted(near - far) if u in self.homes and self._last_use(u) == i)
                like = next((u for u in ends if self._is_like(u, stage.name)), None)
                yield stage.name, like
                near.discard(like or "")

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

    def _extra(self, node: Node) -> dict[str, int]:
        """Return the bytes of a binary layer's tables and of its map with a border."""
        taps, quads = (
            prod(node.tensors["weight"].shape[1:3]),
            quads_of(self.graph.values[node.inputs[0]].shape[0]),
        )
        tables = 0 if node.attributes["groups"] > 1 else taps * quads * _ENTRIES * 4
        (height, width), border = self._size(node.inputs[0]), self._border(node)
        around = (
            (height + border[0] + border[2]) * (width + border[1] + border[3]) * quads if any(border) else 0
        )
        return {f"{node.name} tables": tables, f"{node.name} border": around}

    def _border(self, node: Node) -> tuple[int, ...]:
        return tuple(node.attributes["padding"]) if node.attributes["pad_value"] else (0, 0, 0, 0)

    def _bytes(self, name: str) -> int:
        value = self.graph.values[name]
        pixels = prod(value.shape[1:])
        if value.type == "bit":
            return pixels * quads_of(value.shape[0])
        return pixels * value.shape[0] * (4 if value.type == "output" else 2)

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
        return f"({kind} *)(arena + {self.offsets[key] // 4})"

    def _write(self, i: int, layer: Layer) -> None:
        name = self.constants.unused(f"run_{layer.names[0]}")
        made = self.graph.values[layer.value]
        channels, (height, width) = made.shape[0], size_of(made)
        n = str(min(_BLOCK, channels)) if channels % _BLOCK == 0 or channels < _BLOCK else "n"
        setup, before, make = self._first(layer, n)
        current, stages = layer.value, []
        if current in self.stored and layer.first is not None:
            stages.append(self._store(current, n))
        for stage in layer.stages:
            joined = self._join(stage, current, n)
            stages += joined or self._stage(stage, current, n)
            current = current if stage.op == "threshold" else stage.name
            if not joined and stage.op != "threshold" and stage.name in self.stored:
                stages.append(self._store(stage.name, n))
        size = (
            [f"const int32_t n = {channels} - o < {_BLOCK} ? {channels} - o : {_BLOCK};"] if n == "n" else []
        )
        title = ", ".join(f"{node.name} ({node.op})" for node in [layer.first, *layer.stages] if node)
        loop = [
            f"for (int32_t o = 0, pixel = 0; o < {channels}; o += {_BLOCK}, pixel = 0) {{",
            *(f"    {line}" for line in (*size, *before)),
            f"    for (int32_t y = 0; y < {height}; y++)",
            f"        for (int32_t x = 0; x < {width}; x++, pixel++) {{",
            f"            int32_t row[{_BLOCK}];",
            *(f"            {line}" for line in (make, *stages)),
            "        }",
            "}",
        ]
        given = "const void *input" if any("input" in line for line in (make, *setup)) else "void"
        self.functions.append(
            "\n".join(
                [
                    textwrap.fill(f"/* {title} */", WIDTH, subsequent_indent="   "),
                    f"static void {name}({given})",
                    "{",
                    *(f"    {line}" for line in (*setup, *loop)),
                    "}",
                ]
            )
        )
        self.calls.append(f"{name}({'input' if given != 'void' else ''});")

    def hand_out(self, names: list[str]) -> Iterator[str]:
        """Yield the calls that write the outputs to what `names` point at."""
        for to, name in zip(names, self.graph.outputs, strict=True):
            value = self.graph.values[self.root(name)]
            kind = {"bit": "hand_out_signs", "output": "hand_out_sums"}.get(value.type, "hand_out")
            quads = f", {quads_of(value.shape[0])}" if value.type == "bit" else ""
            yield f"{kind}({to}, {self.at(name)}, {value.shape[0]}, {prod(value.shape[1:])}{quads});"

    def _element(self, name: str) -> str:
        """Return where the channels o and on of a pixel of a value lie."""
        value = self.graph.values[self.root(name)]
        pixel = "" if prod(value.shape[1:]) == 1 else f" + pixel * {value.shape[0]}"
        return f"{self.at(name)}{pixel} + o"

    def _store(self, name: str, n: str) -> str:
        kind = "store_sums" if self.graph.values[name].type == "output" else "store"
        return f"{kind}({self._element(name)}, row, {n});"

    def _window(
        self, node: Node, kernel: tuple[int, ...], source: str, border: tuple[int, ...] = (0,) * 4
    ) -> str:
        """Return a window; what a border adds to the map is no padding."""
        height, width = self._size(source)
        top, left, bottom, right = border
        parts = [(height + top + bottom, width + left + right), size_of(self.graph.values[node.name]), kernel]
        padding = tuple(a - b for a, b in zip(node.attributes["padding"][:2], border[:2], strict=True))
        parts += [node.attributes["stride"], padding, node.attributes.get("dilation", (1, 1))]
        return f"{{{', '.join(str(part) for pair in parts for part in pair)}}}"

    def _first(self, layer: Layer, n: str) -> tuple[list[str], list[str], str]:
        """Return declarations, what is done for each 8 channels, and the statement that makes a row."""
        node = layer.first
        if node is None:
            return [], [], f"load(row, {self._element(layer.value)}, {n});"
        if node.op == "conv":
            return self._conv(node, n)
        if node.op == "binary_conv":
            return self._binary_conv(node, n)
        if node.op in ("max_pool2d", "avg_pool2d"):
            return self._pool(node, n)
        return [], [], self._move(node, n)

    def _conv(self, node: Node, n: str) -> tuple[list[str], list[str], str]:
        """A pixel is read as the byte that it was, 128 more: the bias makes up for it."""
        source = node.inputs[0]
        weight, bias = node.tensors["weight"], node.tensors["bias"].astype(np.int64)
        outputs, depth, groups = len(weight), weight.shape[-1], node.attributes["groups"]
        pixels = self.graph.values[self.root(source)].type == "pixel"
        outside = node.tensors["outside"].astype(np.int64)
        if pixels:
            bias, outside = bias - _PIXEL * weight.astype(np.int64).sum((1, 2, 3)), outside + _PIXEL
        together = _TOGETHER if groups == 1 else 1
        rows = np.zeros((-(-outputs // together) * together, prod(weight.shape[1:])), np.int8)
        rows[:outputs] = weight.reshape(outputs, -1)
        blocks = rows.reshape(-1, together, rows.shape[1]).transpose(0, 2, 1)
        padded = np.zeros(len(rows), np.int32)
        padded[:outputs] = bias
        names = [
            self.constants.define(f"{node.name}_weight", (blocks.astype(np.int16) + _PIXEL).astype(np.uint8)),
            self.constants.define(f"{node.name}_bias", padded),
            self.constants.define(f"{node.name}_outside", outside.astype(np.uint8)) if outside.any() else "0",
        ]
        kind = ("grouped_" if groups > 1 else "") + ("conv_pixels" if pixels else "conv")
        channels = self.graph.values[source].shape[0]
        window = self._window(node, weight.shape[1:3], source)
        setup = [f"static const layer l = {{{window}, {channels}, {depth}, {outputs // groups}}};"]
        make = f"{kind}(row, {self.at(source)}, &l, {', '.join(names)}, y, x, o, {n});"
        if "multiplier" in node.tensors:
            multiplier = self.constants.define(f"{node.name}_multiplier", node.tensors["multiplier"])
            make += f" scale_sums(row, {multiplier} + o, {node.attributes['shift']}, {n});"
        return setup, [], make

    def _binary_conv(self, node: Node, n: str) -> tuple[list[str], list[str], str]:
        source, weight, groups = node.inputs[0], node.tensors["weight"], node.attributes["groups"]
        outputs, depth = len(weight), weight.shape[-1]
        channels, border = self.graph.values[source].shape[0], self._border(node)
        quads, size = quads_of(channels), self._size(source)
        window = self._window(node, weight.shape[1:3], source, border)
        last = outputs // groups if groups > 1 else max(_COUNTED // (weight.shape[2] * quads), 1)
        setup = [f"static const layer l = {{{window}, {quads}, {depth}, {last}}};"]
        of_map = self.at(source)
        if any(border):
            filled = np.array([(i % _ALIGNED) << 6 for i in range(quads)], np.uint8)
            lanes = np.arange(quads * _QUAD).reshape(quads, _QUAD) < channels
            if node.attributes["pad_value"] > 0:
                filled |= (lanes << np.arange(2, 6)).sum(1).astype(np.uint8)
            name = self.constants.define(f"{node.name}_border", filled)
            of_map = self._pointer(f"{node.name} border", "uint8_t")
            sides = ", ".join(map(str, (*size, quads, *border)))
            setup.append(f"surround({of_map}, {self.at(source)}, {sides}, {name});")
        if groups > 1:
            bits = self.constants.define(
                f"{node.name}_weight", np.packbits(weight.ravel() > 0, bitorder="little")
            )
            return setup, [], f"grouped_binary_conv(row, {of_map}, &l, {bits}, y, x, o, {n});"
        kind = "binary_conv" if node.attributes["dilation"] == (1, 1) else "dilated_binary_conv"
        words = _words(weight, quads)
        name = self.constants.define(f"{node.name}_weight", words)
        tables = self._pointer(f"{node.name} tables", "uint32_t")
        build = f"build({tables}, {name} + o / {_BLOCK} * {words.shape[1]}, {words.shape[1]});"
        return setup, [build], f"{kind}(row, {of_map}, &l, {tables}, y, x);"

    def _pool(self, node: Node, n: str) -> tuple[list[str], list[str], str]:
        source = node.inputs[0]
        channels = self.graph.values[source].shape[0]
        setup = [f"static const window at = {self._window(node, node.attributes['kernel'], source)};"]
        counted = f", {node.attributes['count_include_pad']}" if node.op == "avg_pool2d" else ""
        kind = node.op.removesuffix("2d")
        return setup, [], f"{kind}(row, {self.at(source)}, &at, {channels}{counted}, y, x, o, {n});"

    def _move(self, node: Node, n: str) -> str:
        source = node.inputs[0]
        value = self.graph.values[source]
        channels, pixels = value.shape[0], prod(value.shape[1:])
        if node.op == "flatten":
            return f"flatten(row, {self.at(source)}, {channels}, {pixels}, o, {n});"
        if node.op == "upsample_nearest":
            scale = ", ".join(map(str, node.attributes["scale"]))
            parts = f"{self._size(source)[1]}, {scale}, {channels}"
            return f"upsample(row, {self.at(source)}, {parts}, y, x, o, {n});"
        if node.op == "pad" and node.attributes["axis"] == 0:
            parts = f"{channels}, {node.attributes['before']}, {int(node.attributes['value'])}"
            return f"pad_channels(row, {self.at(source)} + pixel * {channels}, {parts}, o, {n});"
        return self._gather(node, n)

    def _gather(self, node: Node, n: str) -> str:
        """Places are counted from the first source in memory."""
        starts = [self.offsets[self.homes[self.root(name)]] // 2 for name in node.inputs]
        places = []
        for name, start in zip(node.inputs, starts, strict=True):
            shape = self.graph.values[name].shape
            own = np.arange(prod(shape), dtype=np.int32).reshape(-1, shape[0]).T.reshape(1, *shape)
            places.append(own + np.int32(start - min(starts)))
        moved = OPERATIONS[node.op].reference(node, *places)[0]
        rows = moved.reshape(len(moved), -1).T.astype(np.int32)
        first = node.inputs[int(np.argmin(starts))]
        name, scale = self.constants.define(f"{node.name}_places", rows), len(moved)
        fill = int(node.attributes.get("value", 0))
        return f"gather(row, {self.at(first)}, {name} + pixel * {scale} + o, {fill}, {n});"

    def _stage(self, node: Node, current: str, n: str) -> list[str]:
        if node.op == "threshold":
            return [self._signs(node, n)]
        if node.op == "prelu":
            slope = self._parameter(node, "slope", node.tensors["slope"])
            return [f"prelu(row, {slope}, {node.attributes['shift']}, {n});"]
        order = sorted(range(len(node.inputs)), key=lambda i: node.inputs[i] != current)
        calls = [call for i in order for call in self._operand(node, i, n, in_row=i == order[0])]
        if "offset" in node.tensors:
            calls.append(f"plus(row, {self._parameter(node, 'offset', node.tensors['offset'])}, {n});")
        return [*calls, f"cut(row, {node.attributes['lower']}, {node.attributes['upper']}, {n});"]

    def _join(self, node: Node, current: str, n: str) -> list[str]:
        """Return the call for a term plus a value of the stream, stored where it is read: a block's end."""
        if node.op != "weigh" or len(node.inputs) != 2 or node.attributes["lower"] != -LARGEST:
            return []
        if "offset" in node.tensors:
            return []
        i = node.inputs.index(current)
        power = _power(node.tensors[f"positive{1 - i}"], node.tensors[f"negative{1 - i}"])
        down = node.attributes["shifts"][1 - i] - power
        if power < 0 or down < 0 or _power(node.tensors[f"positive{i}"], node.tensors[f"negative{i}"]) >= 0:
            return []
        positive, negative = node.tensors[f"positive{i}"], node.tensors[f"negative{i}"]
        names = [self._parameter(node, f"positive{i}", positive)]
        same = np.array_equal(positive, negative)
        names.append(names[0] if same else self._parameter(node, f"negative{i}", negative))
        to = self._element(node.name) if node.name in self.stored else "0"
        other, k = self._element(node.inputs[1 - i]), node.attributes["shifts"][i]
        return [f"join({to}, row, {', '.join(names)}, {k}, {other}, {down}, {n});"]

    def _operand(self, node: Node, i: int, n: str, *, in_row: bool) -> list[str]:
        """Return what takes an operand of a weighted sum into the row: multiplied, and added."""
        positive, negative, k = (
            node.tensors[f"positive{i}"],
            node.tensors[f"negative{i}"],
            node.attributes["shifts"][i],
        )
        verb = "" if in_row else "add_"
        given = ["row"] if in_row else ["row", self._element(node.inputs[i])]
        if not np.array_equal(positive, negative):
            names = (
                self._parameter(node, f"{r}{i}", v)
                for r, v in (("positive", positive), ("negative", negative))
            )
            return [f"{verb}bend({', '.join([*given, *names, str(k), n])});"]
        power = _power(positive, negative)
        if power >= 0:
            up, down = max(power - k, 0), max(k - power, 0)
            if up == down:
                return [] if in_row else [f"add({', '.join(given)}, {n});"]
            return [
                f"{verb}{'shift' if in_row else 'shifted'}({', '.join([*given, str(up), str(down), n])});"
            ]
        name = self._parameter(node, f"positive{i}", positive)
        return [f"{verb}times({', '.join([*given, name, str(k), n])});"]

    def _parameter(self, node: Node, role: str, tensor: NDArray[Any]) -> str:
        """Define a parameter of channels, or of each pixel, and return where it begins for a row."""
        value = self.graph.values[node.name]
        if tensor.size not in (value.shape[0], prod(value.shape)):
            tensor = np.broadcast_to(tensor, value.shape[:1])
        rows = np.ascontiguousarray(tensor.reshape(value.shape[0], -1).T)
        name = self.constants.define(f"{node.name}_{role}", rows)
        return f"{name}{f' + pixel * {value.shape[0]}' if len(rows) > 1 else ''} + o"

    def _signs(self, node: Node, n: str) -> str:
        channels = self.graph.values[node.name].shape[0]
        quads = quads_of(channels)
        threshold = self.constants.define(f"{node.name}_threshold", node.tensors["threshold"])
        names, kind = [f"{threshold} + o"], "signs"
        if (node.tensors["direction"] < 0).any():
            kind = "signs_either"
            names.append(f"{self.constants.define(f'{node.name}_direction', node.tensors['direction'])} + o")
        whole = channels % (_QUAD * _ALIGNED) == 0
        end = f"o / {_QUAD} + 2" if whole else f"o + {_BLOCK} < {channels} ? o / {_QUAD} + 2 : {quads}"
        return f"{kind}({self.at(node.name)} + pixel * {quads}, row, {', '.join(names)}, o, {end}, {n});"


def quads_of(channels: int) -> int:
    """Return the index bytes of a pixel."""
    return -(-channels // (_QUAD * _ALIGNED)) * _ALIGNED


def size_of(value: IntegerValue) -> tuple[int, int]:
    """Return the height and width of a value, in rows of pixels."""
    pixels = value.shape[1:]
    return (pixels[0], pixels[1]) if len(pixels) == 2 else (1, prod(pixels))


def _power(positive: NDArray[np.int16], negative: NDArray[np.int16]) -> int:
    """Return m if both multipliers are 2^m for all channels, else -1."""
    if positive.size > 1 or not np.array_equal(positive, negative) or positive.item() <= 0:
        return -1
    m = int(positive.item()).bit_length() - 1
    return m if positive.item() == 1 << m else -1


def _words(weight: NDArray[np.int8], quads: int) -> NDArray[np.uint32]:
    """(O, kh, kw, C) -> (O / 8, taps * quads): bit 4 * output + input; an input that there is not has a 1."""
    outputs, height, width, depth = weight.shape
    ones = np.ones((-(-outputs // _BLOCK) * _BLOCK, height * width, quads * _QUAD), np.uint32)
    ones[:outputs, :, :depth] = weight.reshape(outputs, -1, depth) > 0
    bits = ones.reshape(-1, _BLOCK, height * width * quads, _QUAD).transpose(0, 2, 1, 3)
    places = np.arange(_BLOCK * _QUAD, dtype=np.uint32)
    words: NDArray[np.uint32] = (bits.reshape(*bits.shape[:2], -1) << places).sum(2, dtype=np.uint32)
    return words
