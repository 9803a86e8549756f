"""The layers of a program as C: each instruction a call of `kernels.c`, arrays as constants.

A map lies in the arena as cells of 4 bytes. They are the channels of a pixel one behind the other, or its
signs, 32 to a cell. A layer makes a pixel in `row`, takes it through its stages there, and stores it. A
binary convolution makes integers; they turn real where a scale or a store follows, and not at all where the
next sign does.
"""

import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.format.low_precision import lossless
from bitfactor.format.program import Instruction
from bitfactor.runtime.program import Layer, Program

_WIDTH = 118  # of a line


def comment(text: str) -> str:
    """Return a comment of C; what could end it is replaced, as a file names its nodes as it likes."""
    safe = re.sub(r"[^ -~]|[*/\\?]", "_", text)
    return textwrap.fill(f"/* {safe} */", _WIDTH, subsequent_indent="   ")


def real(value: float) -> str:
    """Write a float32 so that C reads the same."""
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if set(text) & {".", "e"} else f"{text}.0f"


@dataclass
class Constants:
    """Definitions of constants, `lines`, and the `bytes` that they take; names of C that are used once."""

    lines: list[str] = field(default_factory=list)
    bytes: int = 0
    _names: set[str] = field(default_factory=set)

    def define(self, wanted: str, array: NDArray[Any]) -> str:
        """Define a constant named like `wanted`, and return its name."""
        if array.dtype.kind == "f" and np.isnan(array).any():
            fix = "train again, from weights that are numbers"
            raise InputError(f"constant {wanted}", expected="numbers", found="NaN", fix=fix)
        name = self.unused(wanted)
        kind, write = _TYPES[array.dtype.name]
        values = ", ".join(write(value) for value in array.ravel().tolist())
        text = textwrap.fill(values, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        self.lines.append(f"static const {kind} {name}[{array.size}] = {{\n{text}\n}};")
        self.bytes += array.nbytes
        return name

    def unused(self, wanted: str) -> str:
        """Return a name of C like the one wanted that was not given yet."""
        name = base = re.sub(r"\W", "_", f"at_{wanted}" if wanted[0].isdigit() else wanted, flags=re.ASCII)
        while name in self._names:
            name = f"{base}_{len(self._names)}"
        self._names.add(name)
        return name


_TYPES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "float32": ("float", real),
    "int8": ("int8_t", str),
    "uint8": ("uint8_t", str),
    "int16": ("int16_t", str),
    "uint16": ("uint16_t", str),
    "int32": ("int32_t", str),
    "uint32": ("uint32_t", lambda word: f"0x{word:08x}"),
}


CELL = 4  # bytes of an entry of a map, or of 32 of its signs
_SIGNS = 32
_MOST = 1 << 24  # beyond all sums of signs


@dataclass(frozen=True)
class Arguments:
    """An instruction's arguments, and what defines a constant by a name for it, and tells its name in C."""

    instruction: Instruction
    define: Callable[[str, NDArray[Any]], str]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.instruction.arguments[name]

    def number(self, name: str) -> int:
        return int(self[name].item())

    def constant(self, name: str) -> str:
        """Return the name of an argument as a constant."""
        return self.define(name, self[name])


@dataclass(frozen=True)
class Row:
    """What gives a pixel of a layer: how many there are, of how many channels, and how one is made.

    With `sums` they are integers. A window of signs, or of levels, takes `taps` cells of room.
    """

    pixels: int
    channels: int
    statement: str
    declarations: tuple[str, ...] = ()
    sums: bool = False
    taps: int = 0


@dataclass(frozen=True)
class Map:
    """A map in the arena, as C finds it."""

    start: str
    pixels: int
    channels: int
    signs: bool

    @classmethod
    def of(cls, buffer: NDArray[Any]) -> "Map":
        offset, pixels, channels, signs = buffer.tolist()
        return cls(at(offset), pixels, channels, bool(signs))

    @property
    def pixel(self) -> str:
        """Where the pixel that is made lies."""
        return f"{self.start} + pixel * {-(-self.channels // _SIGNS) if self.signs else self.channels}"


def at(offset: int) -> str:
    """Return where a map begins that lies so many bytes behind the first."""
    return f"maps + {offset // CELL}"


def _braces(*parts: object) -> str:
    return f"{{{', '.join(map(str, parts))}}}"


def _window(a: Arguments) -> str:
    return _braces(*a["window"].tolist())


def _out_pixels(a: Arguments) -> int:
    return math.prod(a["window"][2:4].tolist())


def _binary_conv(a: Arguments) -> Row:
    outputs, *taps = a["weight"].shape
    groups, pad = a.number("groups"), a.number("pad_value")
    layer = _braces(_window(a), groups, a.number("in_channels"), outputs // groups, taps[-1], pad)
    source, weight = Map.of(a["source"]).start, a.constant("weight")
    return Row(
        _out_pixels(a),
        outputs,
        f"binary_conv(row, taps, {source}, &layer, {weight}, pixel);",
        (f"static const binary_layer layer = {layer};",),
        sums=True,
        taps=math.prod(taps),
    )


def _conv(a: Arguments) -> Row:
    outputs, _, _, depth = a["weight"].shape
    groups = a.number("groups")
    layer = _braces(_window(a), groups, depth, outputs // groups)
    kind, *weights = _real_weight(a)
    constants = ", ".join([*weights, a.constant("bias")])
    return Row(
        _out_pixels(a),
        outputs,
        f"{kind}(row, {Map.of(a['source']).start}, &layer, {constants}, pixel);",
        (f"static const real_layer layer = {layer};",),
    )


def _real_weight(a: Arguments) -> list[str]:
    """Return the function for a weight as small as it is without loss, and the constants that it takes."""
    low = lossless(a["weight"])
    if low is None:
        return ["real_conv", a.constant("weight")]
    if low.steps is None:
        return ["real_conv_halves", a.define("weight", low.values.view(np.uint16))]
    return ["real_conv_levels", a.define("weight", low.values), a.define("step", low.steps)]


def _quantised_conv(a: Arguments) -> Row:
    outputs, *taps = a["weight"].shape
    groups = a.number("groups")
    layer = _braces(_window(a), groups, taps[-1], outputs // groups)
    weight = a.define("weight", a["weight"].view(np.int8))
    constants = ", ".join(a.constant(name) for name in ("scale", "bias", "lowest", "inverse"))
    source, ranges = Map.of(a["source"]).start, a["lowest"].size
    return Row(
        _out_pixels(a),
        outputs,
        f"quantised_conv(row, taps, {source}, &layer, {weight}, {constants}, {ranges}, pixel);",
        (f"static const real_layer layer = {layer};",),
        taps=math.prod(taps),
    )


def _pool(a: Arguments) -> Row:
    kind, channels, source = a.instruction.kind, a.number("channels"), Map.of(a["source"]).start
    counted = f", {a.number('count_include_pad')}" if kind == "avg_pool" else ""
    statement = f"{kind}(row, {source}, &at, {channels}{counted}, pixel);"
    return Row(_out_pixels(a), channels, statement, (f"static const window at = {_window(a)};",))


def _reduce_pixels(a: Arguments) -> Row:
    """A global average pool is a mean, which is the first of the ways to reduce."""
    source, how = Map.of(a["source"]), a.number("how") if a.instruction.kind == "reduce_pixels" else 0
    statement = f"reduce_pixels(row, {source.start}, {source.channels}, {source.pixels}, {how});"
    return Row(1, source.channels, statement)


def _reduce_channels(a: Arguments) -> Row:
    source = Map.of(a["source"])
    statement = f"reduce_channels(row, {source.pixel}, {source.channels}, {a.number('how')});"
    return Row(source.pixels, 1, statement)


def _flatten(a: Arguments) -> Row:
    source = Map.of(a["source"])
    statement = f"flatten(row, {source.start}, {source.channels}, {source.pixels});"
    return Row(1, source.pixels * source.channels, statement)


def _by_pixel(function: str) -> Callable[[Arguments], Row]:
    def row(a: Arguments) -> Row:
        source = Map.of(a["source"])
        more = f", {real(a['eps'].item())}" if "eps" in a.instruction.arguments else ""
        statement = f"{function}(row, {source.pixel}, {source.channels}{more});"
        return Row(source.pixels, source.channels, statement)

    return row


def _concat(a: Arguments) -> Row:
    sources = [Map.of(buffer) for buffer in a["sources"].reshape(-1, 4)]
    starts = np.cumsum([0, *(source.channels for source in sources)]).tolist()
    copies = [
        f"copy(row + {start}, {s.pixel}, {s.channels});" for start, s in zip(starts, sources, strict=False)
    ]
    return Row(sources[0].pixels, starts[-1], " ".join(copies))


def _upsample_nearest(a: Arguments) -> Row:
    (height, width), (scale_y, scale_x) = a["in_size"].tolist(), a["scale"].tolist()
    channels, source = a.number("channels"), Map.of(a["source"]).start
    statement = f"upsample_nearest(row, {source}, {width}, {scale_y}, {scale_x}, {channels}, pixel);"
    return Row(height * scale_y * width * scale_x, channels, statement)


def _gather(a: Arguments) -> Row:
    channels, run = a.number("channels"), a.number("run")
    begins = a["indices"][:, None]
    indices = np.where(begins < 0, begins, begins + np.arange(run, dtype=np.int32)).reshape(-1, channels)
    differ = bool((indices != indices[0]).any())
    places = a.define("indices", indices if differ else indices[0]) + f" + pixel * {channels}" * differ
    source, fill = Map.of(a["source"]).start, real(a["fill"].item())
    return Row(len(indices), channels, f"gather(row, {source}, {places}, {fill}, {channels});")


ROWS: dict[str, Callable[[Arguments], Row]] = {
    "binary_conv": _binary_conv,
    "conv": _conv,
    "quantised_conv": _quantised_conv,
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": _reduce_pixels,
    "reduce_pixels": _reduce_pixels,
    "reduce_channels": _reduce_channels,
    "layer_norm": _by_pixel("layer_norm"),
    "softmax": _by_pixel("softmax"),
    "pointwise": _by_pixel("copy"),
    "concat": _concat,
    "upsample_nearest": _upsample_nearest,
    "flatten": _flatten,
    "gather": _gather,
}


def _signs(a: Arguments, channels: int) -> str:
    names = f"{a.define('threshold', a['threshold'] * a['direction'])}, {_falling(a)}"
    return f"signs({Map.of(a['buffer']).pixel}, row, {names}, {channels});"


def _signs_of_sums(a: Arguments, channels: int) -> str:
    """A sum is above t where it is above floor(t), and below t where it is not above ceil(t) - 1."""
    threshold, falls = a["threshold"] * a["direction"], a["direction"] < 0
    whole = np.clip(np.where(falls, np.ceil(threshold) - 1, np.floor(threshold)), -_MOST, _MOST)
    names = f"{a.define('threshold', whole.astype(np.int32))}, {_falling(a)}"
    return f"signs_of_sums({Map.of(a['buffer']).pixel}, row, {names}, {channels});"


def _falling(a: Arguments) -> str:
    falls = a["direction"] < 0
    padded = np.pad(falls, (0, -len(falls) % _SIGNS))
    return a.define("falling", np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32))


def _alone(function: str) -> Callable[[Arguments, int], str]:
    def stage(a: Arguments, channels: int) -> str:
        parameters = [
            a.constant(name) + (f" + pixel * {channels}" if _of_pixels(a[name]) else "")
            for name in a.instruction.arguments
        ]
        return f"{function}({', '.join(['row', *parameters, str(channels)])});"

    return stage


def _of_pixels(parameter: NDArray[Any]) -> bool:
    """Whether there is a row for each pixel."""
    return parameter.ndim > 1 and len(parameter) > 1


def _store(kind: str) -> Callable[[Arguments, int], str]:
    return lambda a, channels: f"{kind}({Map.of(a['buffer']).pixel}, row, {channels});"


def _paired(a: Arguments, channels: int) -> str:
    other = Map.of(a["buffer"])
    return f"{a.instruction.kind}(row, {other.pixel if other.pixels > 1 else other.start}, {channels});"


STAGES: dict[str, Callable[[Arguments, int], str]] = {
    "signs": _signs,
    "signs_of_sums": _signs_of_sums,
    "store": _store("copy"),
    "store_sums": _store("store_sums"),
    "add": _paired,
    "multiply": _paired,
    "sqrt": _alone("square_roots"),
    **{
        kind: _alone(kind)
        for kind in ("scale", "scale_sums", "affine", "relu", "prelu", "clip", "sigmoid", "reciprocal")
    },
}
ON_SUMS = {"signs": "signs_of_sums", "scale": "scale_sums", "store": "store_sums"}
_WITHOUT_NODE = ("pointwise", "store")


@dataclass
class Layers:
    """The C of a program's layers: `functions`, their `calls`, and the `constants` that they read.

    `row_cells` and `taps_cells` are the room for a row, and for the signs or levels under a window.
    """

    program: Program
    constants: Constants = field(default_factory=Constants)
    functions: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    row_cells: int = 1
    taps_cells: int = 0

    def __post_init__(self) -> None:
        for layer in self.program.layers[1:-1]:
            self._write(layer)

    def _write(self, layer: Layer) -> None:
        nodes = iter(layer.names)
        first, *stages = layer.instructions
        _expect_known(layer)
        row = ROWS[first.kind](self._arguments(nodes, layer, 0))
        self.row_cells = max(self.row_cells, row.channels)
        self.taps_cells = max(self.taps_cells, row.taps)
        statements, sums = [row.statement], row.sums
        for i, stage in enumerate(stages, 1):
            kind = ON_SUMS[stage.kind] if sums else stage.kind
            statements.append(STAGES[kind](self._arguments(nodes, layer, i), row.channels))
            sums = sums and kind != "scale_sums"
        name = self.constants.unused(f"run_{layer.names[0]}")
        ran = [op for op in layer.operations if op != "store"]
        title = ", ".join(f"{node} ({op})" for node, op in zip(layer.names, ran, strict=True))
        lines = [
            comment(title),
            f"static void {name}(void)",
            "{",
            *(f"    {line}" for line in row.declarations),
            f"    for (int32_t pixel = 0; pixel < {row.pixels}; pixel++) {{",
            *(f"        {line}" for line in statements),
            "    }",
            "}",
        ]
        self.functions.append("\n".join(lines))
        self.calls.append(f"{name}();")

    def _arguments(self, nodes: Any, layer: Layer, i: int) -> Arguments:
        instruction = layer.instructions[i]
        node = layer.names[0] if instruction.kind in _WITHOUT_NODE else next(nodes)
        return Arguments(instruction, lambda role, array: self.constants.define(f"{node}_{role}", array))


def _expect_known(layer: Layer) -> None:
    """Raise InputError where a layer holds what kernels.c has no function for."""
    first, *stages = layer.instructions
    several = int(first.arguments.get("maps", np.array(1)).item()) > 1
    unknown = [*[first.kind] * (first.kind not in ROWS), *(s.kind for s in stages if s.kind not in STAGES)]
    if several or unknown:
        raise InputError(
            f"node {layer.names[0]!r}",
            expected="operations that the C form has",
            found=", ".join(unknown) or f"{first.kind} over several maps",
            fix="run the file with bitfactor.runtime, or keep this part out of the network",
        )
