"""The layers of an integer graph as C: functions that call those of `integers.c`.

A layer makes 8 channels of a pixel in `row`, takes them through its stages there, and stores what others
read. Values lie in one arena: 16 bits an element, or an index byte for four signs. What a layer's look-ups
need lies there, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format import Node
from bitfactor.format.integer import IntegerGraph
from bitfactor.format.operations import OPERATIONS
from bitfactor.format.operations.integer import LARGEST
from bitfactor.targets.c99.binary import (
    EIGHT,
    SIGNS,
    bytes_of,
    limits_of,
    power_of,
    rising,
    words,
)
from bitfactor.targets.c99.instructions import Constants, comment
from bitfactor.targets.c99.memory import Layer, Memory, places_of, size_of

_TOGETHER = 4  # outputs of a real-valued layer
_PIXEL = 128
_CONV = "cell *sums, const uint32_t *rows, const paired *l, const uint32_t *weight, const int32_t *bias"
_END = "cell *x, uint8_t *to, cell *n, const int32_t *f, const ending *e, uint32_t marks"


@dataclass
class Made:
    """How a layer makes rows: statements once, for each 8 channels, for each row, and for each pixel.

    With statements for `all_rows`, rows are made one behind the other with all channels.
    """

    pixel: str = ""
    setup: list[str] = field(default_factory=list)
    all_rows: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    row: list[str] = field(default_factory=list)


class IntegerLayers(Memory):
    """The C of an integer graph: `functions`, their `calls`, `constants`, and the bytes of the arena."""

    def __init__(self, graph: IntegerGraph) -> None:
        super().__init__(graph)
        self.constants = Constants()
        self.functions: list[str] = []
        self.calls: list[str] = []
        self.variants: dict[str, str] = {}
        self.constant_bytes: dict[str, int] = {}
        for layer in self.layers:
            before = self.constants.bytes
            self._write(layer)
            self.constant_bytes[layer.names[0]] = self.constants.bytes - before
        self.functions = [*self.variants.values(), *self.functions]

    def _write(self, layer: Layer) -> None:
        name = self.constants.unused(f"run_{layer.names[0]}")
        value = self.graph.values[layer.value]
        channels, (height, width) = value.shape[0], size_of(value)
        n = str(min(EIGHT, channels)) if channels % EIGHT == 0 or channels < EIGHT else "n"
        if shrunk := self._shrink(layer):
            self.functions.append(f"static void {name}(void) {{ {shrunk} }}")
            self.calls.append(f"{name}();")
            return
        made = self._first(layer, n)
        ended = self._end(layer, made)
        stages = [] if ended else self._stages(layer, n)
        size = [f"const int32_t n = {channels} - o < {EIGHT} ? {channels} - o : {EIGHT};"] * (n == "n")
        pixels = [
            f"for (int32_t x = 0, pixel = y * {width}; x < {width}; x++, pixel++) {{",
            f"int32_t row[{EIGHT}];",
            *(made.pixel, *stages),
            "}",
        ]
        rows = ended or [*made.row, *pixels]
        of_rows, of_channels = (
            f"for (int32_t y = 0; y < {height}; y++) {{",
            f"for (int32_t o = 0; o < {channels}; o += {EIGHT}) {{",
        )
        if made.all_rows:
            loop = [of_rows, *made.all_rows, of_channels, *size, *made.block, *rows, "}", "}"]
        else:
            loop = [of_channels, *size, *made.block, of_rows, *rows, "}", "}"]
        title = ", ".join(f"{node.name} ({node.op})" for node in [layer.first, *layer.stages] if node)
        given = (
            "const void *input"
            if any("input" in line for line in (made.pixel, *made.setup, *made.all_rows))
            else "void"
        )
        self.functions.append(
            "\n".join(
                [
                    comment(title),
                    f"static void {name}({given})",
                    "{",
                    *indented([*made.setup, *loop]),
                    "}",
                ]
            )
        )
        self.calls.append(f"{name}({'input' if given != 'void' else ''});")

    def _stages(self, layer: Layer, n: str) -> list[str]:
        current, stages, node = layer.value, [], layer.first
        if node and node.op == "conv" and "multiplier" in node.tensors:
            multiplier = self.constants.define(f"{node.name}_multiplier", node.tensors["multiplier"])
            lower, upper = self._bounds(node, layer.stages)
            given = f"{multiplier} + o, {node.attributes['shift']}, {lower}, {upper}"
            stages.append(f"scale_sums(row, {given}, {n});")
        if current in self.stored and layer.first is not None:
            stages.append(self._store(current, n))
        for stage in layer.stages:
            if layer.first and current == layer.first.name and self._only_cuts(layer.first, stage):
                if stage.name in self.stored:
                    stages.append(self._store(stage.name, n))
                current = stage.name
                continue
            joined = self._join(stage, current, n)
            stages += joined or self._stage(stage, current, n)
            current = current if stage.op == "threshold" else stage.name
            if not joined and stage.op != "threshold" and stage.name in self.stored:
                stages.append(self._store(stage.name, n))
        return stages

    def hand_out(self, names: list[str]) -> Iterator[str]:
        """Yield the calls that write the outputs to what `names` point at."""
        for to, name in zip(names, self.graph.outputs, strict=True):
            value, stored = self.graph.values[name], self.graph.values[self.root(name)]
            kind = {"bit": "hand_out_signs", "output": "hand_out_sums"}.get(stored.type, "hand_out")
            yield f"{kind}({to}, {self.at(name)}, {value.shape[0]}, {prod(value.shape[1:])});"

    def _element(self, name: str) -> str:
        """Return where the channels o and on of a pixel of a value lie."""
        value = self.graph.values[name]
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

    def _first(self, layer: Layer, n: str) -> Made:
        node = layer.first
        if node is None:
            return Made(f"load(row, {self._element(layer.value)}, {n});")
        if node.op == "conv":
            return self._of_pixels(node) if self.sees_pixels(node) else self._of_stream(node, n)
        if node.op == "binary_conv":
            return self._binary_conv(node, n)
        if node.op in ("max_pool2d", "avg_pool2d"):
            return self._pool(node, n)
        return Made(self._move(node, n))

    def _of_stream(self, node: Node, n: str) -> Made:
        """Weights are 128 more, a pixel is read as the byte that it was: the bias makes up for it."""
        source, weight = node.inputs[0], node.tensors["weight"]
        bias, outside = (node.tensors[role].astype(np.int64) for role in ("bias", "outside"))
        outputs, depth, groups = len(weight), weight.shape[-1], node.attributes["groups"]
        pixels = self.graph.values[self.root(source)].type == "pixel"
        if pixels:
            bias, outside = bias - _PIXEL * weight.astype(np.int64).sum((1, 2, 3)), outside + _PIXEL
        together = _TOGETHER if groups == 1 else 1
        rows = padded_to(together, weight.reshape(outputs, -1))
        blocks = rows.reshape(-1, together, rows.shape[1]).transpose(0, 2, 1)
        names = [
            self.constants.define(f"{node.name}_weight", (blocks.astype(np.int16) + _PIXEL).astype(np.uint8)),
            self.constants.define(f"{node.name}_bias", padded_to(together, bias).astype(np.int32)),
            self.constants.define(f"{node.name}_outside", outside.astype(np.uint8)) if outside.any() else "0",
        ]
        channels = self.graph.values[source].shape[0]
        window = self._window(node, weight.shape[1:3], source)
        setup = [f"static const layer l = {{{window}, {channels}, {depth}, {outputs // groups}}};"]
        given = f"{self.at(source)}, &l, {', '.join(names)}, y"
        if groups > 1:
            kind = "grouped_conv_pixels" if pixels else "grouped_conv"
            return Made(f"{kind}(row, {given}, x, o, {n});", setup)
        sums = self._pointer(f"{node.name} sums", "cell")
        return Made(self._of_sums(node, n), setup, row=[f"conv({sums}, {given}, o, {n});"])

    def _of_sums(self, node: Node, n: str) -> str:
        """Return the call that takes a pixel of a row of sums."""
        sums = self._pointer(f"{node.name} sums", "cell")
        return f"store_sums(row, (const int32_t *)({sums} + x * {EIGHT}), {n});"

    def _of_pixels(self, node: Node) -> Made:
        """Two values are multiplied at once, in rows that end with a pair: see `pair_up`."""
        weight, source = padded_to(EIGHT, node.tensors["weight"]).astype(np.int64), node.inputs[0]
        outputs, height, width, depth = weight.shape
        taps = np.zeros((outputs, height, -(-width * depth // 2) * 2), np.int64)
        taps[:, :, : width * depth] = weight.reshape(outputs, height, -1)
        pairs = (taps[..., 1::2] + (taps[..., ::2] << 16)) & 0xFFFFFFFF
        fours = pairs.reshape(-1, _TOGETHER, height * pairs.shape[-1]).transpose(0, 2, 1).astype(np.uint32)
        size = fours[0].size * EIGHT // _TOGETHER
        outside = (node.tensors["outside"].astype(np.int64) + _PIXEL).astype(np.uint8)
        names = [
            self.constants.define(f"{node.name}_{role}", array)
            for role, array in (
                ("outside", np.broadcast_to(outside, depth)),
                ("weight", fours),
                ("bias", padded_to(EIGHT, node.tensors["bias"]).astype(np.int32)),
            )
        ]
        columns, pitch = self._columns(node)
        window = self._window(node, weight.shape[1:3], source)
        rows = self._pointer(f"{node.name} rows", "uint32_t")
        sums = self._pointer(f"{node.name} sums", "cell")
        name = self._variant("conv_pixels", _CONV, {f"{pairs.shape[-1]}": pairs.shape[-1]})
        return Made(
            self._of_sums(node, str(EIGHT)),
            [f"static const paired l = {{{window}, {depth}, {columns}, {pitch}}};"],
            [f"pair_up({rows}, {self.at(source)}, &l, {names[0]}, y);"],
            row=[f"{name}({sums}, {rows}, &l, {names[1]} + o / {EIGHT} * {size}, {names[2]} + o);"],
        )

    def _bounds(self, node: Node, stages: list[Node]) -> tuple[int, int]:
        if stages and self._only_cuts(node, stages[0]):
            return stages[0].attributes["lower"], stages[0].attributes["upper"]
        return -LARGEST, LARGEST

    def _only_cuts(self, node: Node, stage: Node) -> bool:
        """Whether a stage bounds what a layer gives, and nothing else reads that: the layer can."""
        plain = stage.op == "weigh" and stage.inputs == (node.name,) and "offset" not in stage.tensors
        if not plain or node.op != "conv" or "multiplier" not in node.tensors or node.name in self.stored:
            return False
        readers = [each for each in self.graph.nodes if node.name in each.inputs]
        power = power_of(stage.tensors["positive0"], stage.tensors["negative0"])
        return readers == [stage] and power == stage.attributes["shifts"][0]

    def _binary_conv(self, node: Node, n: str) -> Made:
        source, weight, groups = node.inputs[0], node.tensors["weight"], node.attributes["groups"]
        channels, border, of = self.graph.values[source].shape[0], self._border(node), self.counting(node)
        window = self._window(node, weight.shape[1:3], source, border)
        made, of_map = Made(), self.at(source)
        if any(border):
            filled = bytes_of(np.full(channels, node.attributes["pad_value"] > 0))
            name = self.constants.define(f"{node.name}_border", filled)
            of_map = self._pointer(f"{node.name} border", "uint8_t")
            sides = ", ".join(map(str, (*self._size(source), len(filled), *border)))
            made.setup.append(f"surround({of_map}, {self.at(source)}, {sides}, {name});")
        if of is None:
            parts = f"{window}, {channels}, {weight.shape[-1]}, {len(weight) // groups}"
            made.setup.append(f"static const layer l = {{{parts}}};")
            packed = np.packbits(weight.ravel() > 0, bitorder="little")
            name = self.constants.define(f"{node.name}_weight", packed)
            made.pixel = f"grouped_binary_conv(row, {of_map}, &l, {name}, y, x, o, {n});"
            return made
        counted = (channels, of.rows, of.parts, of.next, of.all, of.pitch, of.plane_bytes)
        made.setup.append(f"static const binary l = {{{window}, {', '.join(map(str, counted))}}};")
        sizes = ", ".join(map(str, (*of.size, channels, of.beside)))
        index, tables, edges = (
            self._pointer(f"{node.name} {what}", "uint32_t") for what in ("index", "tables", "edges")
        )
        counts = self._pointer(f"{node.name} counts", "cell")
        made.setup.append(f"spread({index}, {of_map}, {sizes});")
        bits = words(weight, in_bytes=node.name in self.ends and of.parts == 1)
        name, size = self.constants.define(f"{node.name}_weight", bits), bits.shape[1]
        words_of = f"{name} + o / {EIGHT} * {size}"
        if of.kind != "count_row_directly":
            made.block.append(f"build({tables}, {words_of}, {size});")
        if of.edges:
            made.block.append(f"count_edges({edges}, {tables}, &l);")
        given = [counts, f"(uint8_t *)({index} + {of.beside})", "&l"]
        given += [words_of if of.kind == "count_row_directly" else tables]
        given += [edges] * (of.kind == "count_threes")
        made.row.append(f"{of.kind}({', '.join(given)}, y);")
        made.pixel = f"take(row, {counts} + x * {of.next}, &l);"
        return made

    def _end(self, layer: Layer, made: Made) -> list[str]:
        """Return the statements for a row that ends at once."""
        if layer.value in self.ends:
            return self._end_sums(layer, made)
        node, stages = layer.first, list(layer.stages)
        if node is None or not self._has_sums(node) or "multiplier" not in node.tensors:
            return []
        lower, upper = self._bounds(node, stages)
        name = stages.pop(0).name if (lower, upper) != (-LARGEST, LARGEST) else node.name
        plain = not stages or (
            len(stages) == 1 and stages[0].op == "threshold" and stages[0].inputs == (name,)
        )
        channels, multiplier = len(node.tensors["weight"]), node.tensors["multiplier"].astype(np.int64)
        if not plain or channels % EIGHT or name not in self.stored:
            return []
        signs = stages[0] if stages else None
        limits, marks = limits_of(signs, lower, upper, channels)
        weight, shift = node.tensors["weight"].astype(np.int64), node.attributes["shift"]
        largest = _PIXEL if self.sees_pixels(node) else LARGEST
        reach = np.abs(weight).sum((1, 2, 3)) * largest + np.abs(node.tensors["bias"].astype(np.int64))
        near = bool(((reach * np.abs(multiplier)) >> shift < 1 << 29).all())
        flags = {f"{shift}": shift, "near" if near else "far": int(near)}
        flags |= {SIGNS[limits.shape[1]]: SIGNS[limits.shape[1]].upper()}
        pairs = np.broadcast_to(multiplier, channels).reshape(-1, 2)
        table = np.concatenate([pairs, limits], 1).astype(np.int32)
        sums, parts = self._pointer(f"{node.name} sums", "cell"), (0, 0, lower, upper - lower, 0)
        return [*made.row, self._ended(made, "scale_row", flags, name, signs, sums, table, marks, parts)]

    def _end_sums(self, layer: Layer, made: Made) -> list[str]:
        end, node, weigh = self.ends[layer.value], layer.first, layer.stages[0]
        assert node is not None
        of, last = end.of, end.curve.last
        shape = self.graph.values[last].shape
        other = next(self.root(name) for name in weigh.inputs if name != node.name)
        if self.homes[other] != self.homes[last]:
            made.setup.append(f"copy({self.at(last)}, {self.at(other)}, {prod(shape)});")
        counts = self._pointer(f"{node.name} counts", "cell")
        parts = (of.all, end.down, end.lower, end.most, end.slope_shift)
        if of.parts > 1:
            made.row.append(f"widen_row({counts}, {shape[-1]}, {of.parts}, {of.next});")
        given = (end.flags(), last, end.curve.signs, counts, end.table, end.marks, parts, of.next)
        return [*made.row, self._ended(made, "finish_row", *given)]

    def _ended(
        self,
        made: Made,
        kind: str,
        flags: dict[str, object],
        name: str,
        signs: Node | None,
        sums: str,
        table: NDArray[np.int32],
        marks: NDArray[np.uint16],
        parts: tuple[int, ...],
        next_pixel: int = EIGHT,
    ) -> str:
        """Return the call that takes a row of sums into the stream."""
        channels, width = self.graph.values[name].shape[0], self._size(name)[1]
        given = ", ".join(map(str, (width, next_pixel, channels, *parts)))
        made.setup.append(f"static const ending e = {{{given}}};")
        ends = f"{self.constants.define(f'{name}_end', table)} + o / 2 * {table.shape[1]}"
        to, mark = "0", "255" if signs else "0"
        if signs:
            to = self._signs_at(signs.name, f"y * {width}")
            if (marks != 0xFF).any():
                mark = self.constants.define(f"{signs.name}_marks", marks) + f"[o / {EIGHT}]"
        x = self._pointer(self.homes[name], "cell") + f" + (y * {width * channels} + o) / 2"
        return f"{self._variant(kind, _END, flags)}({x}, {to}, {sums}, {ends}, &e, {mark});"

    def _variant(self, kind: str, given: str, flags: dict[str, object]) -> str:
        """Define a function of its own for flags, whose keys make its name, once; return that."""
        name, names = "_".join([kind.removesuffix("_row"), *flags]), re.findall(r"(\w+)(?:,|$)", given)
        passed = ", ".join([*names, *map(str, flags.values())])
        self.variants[name] = f"APART void {name}({given})\n{{\n    {kind}({passed});\n}}"
        return name

    def _signs_at(self, name: str, pixel: str) -> str:
        """Return where the signs of the channels o and on of a pixel lie."""
        plane = prod(self.graph.values[name].shape[1:])
        return f"{self.at(name)} + o / {EIGHT} * {plane} + {pixel}"

    def _falls(self, threshold: Node) -> str:
        """Define which channels are +1 below their thresholds."""
        _, falls = rising(threshold)
        if not falls.any():
            return "0"
        return f"{self.constants.define(f'{threshold.name}_falls', bytes_of(falls))}[o / {EIGHT}]"

    def _pool(self, node: Node, n: str) -> Made:
        source = node.inputs[0]
        channels = self.graph.values[source].shape[0]
        setup = [f"static const window at = {self._window(node, node.attributes['kernel'], source)};"]
        counted = f", {node.attributes['count_include_pad']}" if node.op == "avg_pool2d" else ""
        kind = node.op.removesuffix("2d")
        return Made(f"{kind}(row, {self.at(source)}, &at, {channels}{counted}, y, x, o, {n});", setup)

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
        if node.op != "moved":
            return self._gather(node, n)
        of = places_of(self.graph, node)
        steps = of.steps(*self._size(node.name))
        if of.strided and steps:
            pixel = f"{self.at(source)} + {steps[0]} + y * {steps[1]} + x * {steps[2]}"
            return f"pad_channels(row, {pixel}, {of.strided[0]}, {of.strided[1]}, {of.fill}, o, {n});"
        name = self.constants.define(f"{node.name}_places", of.places)
        given = f"{name} + pixel * {of.places.shape[1]} + o, {of.fill}"
        return f"gather(row, {self.at(source)}, {given}, {n});"

    def _shrink(self, layer: Layer) -> str:
        """Return the call that moves whole pixels, also within the source's place, if they are strided."""
        node = layer.first
        if node is None or node.op != "moved" or layer.stages or node.name not in self.stored:
            return ""
        of, (height, width) = places_of(self.graph, node), self._size(node.name)
        steps, used = of.steps(height, width), of.strided
        if steps is None or used is None:
            return ""
        sizes = (height, width, *steps[1:], used[0], of.places.shape[1], used[1], of.fill)
        source = f"{self.at(node.inputs[0])} + {steps[0]}"
        return f"shrink({self.at(node.name)}, {source}, {', '.join(map(str, sizes))});"

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
        return f"gather(row, {self.at(first)}, {name} + pixel * {scale} + o, 0, {n});"

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
        power = power_of(node.tensors[f"positive{1 - i}"], node.tensors[f"negative{1 - i}"])
        down = node.attributes["shifts"][1 - i] - power
        if power < 0 or down < 0 or power_of(node.tensors[f"positive{i}"], node.tensors[f"negative{i}"]) >= 0:
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
        power = power_of(positive, negative)
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
        limits, _ = rising(node)
        threshold = self.constants.define(f"{node.name}_threshold", limits)
        to = self._signs_at(node.name, "pixel")
        return f"signs({to}, row, {threshold} + o, {self._falls(node)}, {n});"


def padded_to(multiple: int, rows: NDArray[Any]) -> NDArray[Any]:
    """Return more rows, of zeros, if it takes them for a multiple."""
    return np.concatenate([rows, np.zeros((-len(rows) % multiple, *rows.shape[1:]), rows.dtype)])


def indented(lines: list[str]) -> Iterator[str]:
    depth = 1
    for line in lines:
        depth -= line == "}"
        yield f"{'    ' * depth}{line}"
        depth += line.endswith("{")
