"""A model file as C99: one source and one header, without dependencies or malloc, and with one arena."""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.result import Result
from bitfactor.format import InputSpec, ModelFile
from bitfactor.format.integer import integers_of
from bitfactor.runtime.plan import steps_apart
from bitfactor.runtime.prediction import gives_probabilities
from bitfactor.runtime.program import program_of
from bitfactor.runtime.runner import magnitudes_on
from bitfactor.targets.c99.board import (
    BoardError,
    CoreName,
    Cost,
    can_count,
    counted,
    estimated,
    expect_fits,
)
from bitfactor.targets.c99.instructions import CELL, Constants, Layers, Map, real
from bitfactor.targets.c99.integers import IntegerLayers

_WIDTH = 110
CPrecision = Literal["highest", "integer"]
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_ESTIMATED = "estimated from the counts of kernels (the zoo's are up to 10 % off, with up to 25 % more flash)"
_STANDARD = re.compile(  # headers of C, whose place another one of the name would take
    "assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|"
    "stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|uchar|wchar|wctype",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class CReport(Result):
    """What `export_c` wrote: two files, functions that begin with `prefix`, and the memory that it takes.

    `constant_bytes` are the weights and thresholds, in flash beside the code; `arena_bytes` the RAM, beside
    the stack. In integers, `flash`, `ram` and the instructions of layers on a `core` are `counted` in an
    emulator, or else estimated. If the compiler or the emulator failed, `note` says why.
    """

    source: str
    header: str
    prefix: str
    constant_bytes: int
    arena_bytes: int
    core: str | None = None
    counted: bool = False
    flash: int | None = None
    ram: int | None = None
    costs: tuple[Cost, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        lines = [
            f"{self.source} and {self.header}: C99, {self.prefix}_run",
            f"{self.constant_bytes:,} bytes of constants (flash), {self.arena_bytes:,} of arena (RAM)",
        ]
        if self.costs:
            how = "counted in the emulator" if self.counted else _ESTIMATED
            total = sum(cost.instructions for cost in self.costs)
            lines.append(f"{self.core} at -O3, {how}:")
            lines.append(f"{self.flash:,} bytes of flash with code, {self.ram:,} of RAM without the stack")
            lines += [f"{cost.instructions:14,} {cost.layer}" for cost in self.costs]
            lines.append(f"{total:14,} instructions in all")
        lines += [self.note] * bool(self.note)
        return "\n".join(lines)


@checked
def export_c(
    model: ModelFile,
    path: str | os.PathLike[str],
    *,
    precision: CPrecision = "highest",
    samples: NDArray[np.float32] | None = None,
    core: CoreName | None = None,
    max_ram: int | None = None,
    max_flash: int | None = None,
    overwrite: bool = False,
) -> CReport:
    """Write `model` as C99 to `path`, a name in .c, and beside it the header of the same name.

    The functions carry the name of the file. Signs and their sums are computed exactly, in integers. Real
    numbers are by single operations in float, where the runtime has fused ones. They differ in the last
    digits, and a sign behind one next to its threshold may be another.

    With `precision` "integer" there is no float at all: pixels in, integers of 32 bits out, the same on every
    machine. `samples`, prepared inputs (N, ...), then give the ranges of values; without them the file's own
    calibration does, or else the weights.
    With a `core` the report says what layers take on it; `max_ram` and `max_flash` are limits in bytes.

    Raises
    ------
    InputError
        If the name does not end in .c or is none that C can take, or the files cannot be written. Also if one
        is there that bitfactor did not write, without `overwrite`, or if integers do not define an operation.
        Also if the network takes more than `max_ram` or `max_flash`, or these are below 1.

    Example
    -------
    >>> export_c(bitfactor.format.load("net.safetensors"), "net.c").arena_bytes
    46736
    """
    path = Path(path)
    for limit, given in (("--max-ram", max_ram), ("--max-flash", max_flash)):
        fits = given is None or given >= 1
        expect_that(fits, limit, expected="1 byte or more", found=given, fix="give what the board has")
    for file in (path, path.with_suffix(".h")):
        expect_output(file, overwrite=overwrite)
    prefix = _prefix(path)
    model.expect_one_input(path)
    if precision == "integer":
        return _export_integers(model, path, prefix, samples, core, max_ram, max_flash)
    layers = Layers(program_of(model.graph, steps_apart(model.graph), sign_word=CELL))
    arena_cells = layers.row_cells + layers.taps_cells + layers.program.arena_bytes // CELL
    header = _header(model, prefix, arena_cells * CELL)
    source = _source(model, path, prefix, layers)
    _write(path, source, header)
    return CReport(str(path), str(path.with_suffix(".h")), prefix, layers.constants.bytes, arena_cells * CELL)


def _export_integers(
    model: ModelFile,
    path: Path,
    prefix: str,
    samples: NDArray[np.float32] | None,
    core: CoreName | None,
    max_ram: int | None,
    max_flash: int | None,
) -> CReport:
    if samples is not None:
        model = replace(model, ranges=magnitudes_on(model.graph, samples))
    layers = IntegerLayers(integers_of(model))
    texts = _integer_source(model, path, prefix, layers), _integer_header(model, prefix, layers)
    on = core or "cortex-m0plus"
    (costs, flash, ram), note = estimated(layers, on), ""
    counts = core is not None and can_count(layers, on)
    if counts:
        with TemporaryDirectory() as folder:
            draft = Path(folder) / path.name
            _write(draft, *texts)
            try:
                costs, flash, ram = counted(layers, draft, prefix, on)
            except BoardError as error:
                counts, note = False, f"It was not counted: {error}"
    expect_fits(layers, flash, ram, max_flash, max_ram, counted=counts)
    _write(path, *texts)
    names, sizes = (str(path), str(path.with_suffix(".h"))), (layers.constants.bytes, layers.arena_bytes)
    if core is None:
        return CReport(*names, prefix, *sizes)
    return CReport(*names, prefix, *sizes, core, counts, flash, ram, tuple(costs), note)


def _integer_header(model: ModelFile, prefix: str, layers: IntegerLayers) -> str:
    values, spec = layers.graph.values, model.input_spec
    given, outputs = values[layers.graph.input], [values[name] for name in layers.graph.outputs]
    sizes = [("pixels" if spec else "input", given.shape)]
    sizes += zip(_names(model), (value.shape for value in outputs), strict=True)
    run = _RUN_INTEGERS.format(
        said=_pixels(spec, of_person=model.skeleton is not None) if spec else _INTEGERS.format(given.scale),
        scales=", ".join(f"{value.scale:.9g}" for value in outputs),
        run=_integer_run(model, prefix),
    )
    parts = [_PREPARE.format(prefix=prefix, upper=prefix.upper())] if spec and spec.of_images else []
    return _header_of(model, prefix, _IN_INTEGERS, layers.arena_bytes, sizes, run, parts)


def _integer_run(model: ModelFile, prefix: str) -> str:
    entry, kind = ("run_image", "uint8_t") if model.input_spec else ("run", "int16_t")
    return f"void {prefix}_{entry}(const {kind} *input, {_outputs(model, 'int32_t')})"


def _header_of(
    model: ModelFile,
    prefix: str,
    what: str,
    arena_bytes: int,
    sizes: Sequence[tuple[str, tuple[int, ...]]],
    run: str,
    parts: Sequence[str],
) -> str:
    upper, names = prefix.upper(), _labels(model)
    defined = [
        f"#define {upper}_{name.upper()}_SIZE {prod(shape)} /* {' x '.join(map(str, shape))} */"
        for name, shape in sizes
    ]
    labels = [_LABELS.format(prefix=prefix, count=len(names))] if names else []
    return _HEADER.format(
        what=what,
        upper=upper,
        arena_bytes=arena_bytes,
        sizes="\n".join(defined),
        run=run,
        parts="".join([*parts, *labels]),
    )


def _integer_source(model: ModelFile, path: Path, prefix: str, layers: IntegerLayers) -> str:
    graph, calls = layers.graph, list(layers.calls)
    if not graph.spec:
        calls.insert(0, f"copy({layers.at(graph.input)}, input, {prod(graph.values[graph.input].shape)});")
    calls += layers.hand_out(_names(model))
    body = "\n".join(f"    {call}" for call in calls)
    run = f"{_integer_run(model, prefix)}\n{{\n{body}\n}}"
    functions = [*layers.functions, run, *_of_labels(model, prefix)]
    if (spec := model.image_spec) and spec.of_images:
        functions.append(_prepare(prefix, spec))
    memory = f"static uint32_t arena[{prefix.upper()}_ARENA_BYTES / {CELL}];"
    includes = f'{_WRITTEN}{_FOR_SPEED}#include "{path.stem}.h"'
    return _source_of(includes, "integers.c", memory, layers.constants, functions)


def _source_of(
    includes: str, kernels: str, memory: str, constants: Constants, functions: Sequence[str]
) -> str:
    text = "\n".join(functions)
    needed = (*_kernels(text, kernels), *_kernels(text, "prepare.c"))
    return "\n\n".join((includes, *needed, memory, *constants.lines, *functions)) + "\n"


def _write(path: Path, source: str, header: str) -> None:
    with replacing(path.with_suffix(".h")) as one, replacing(path) as other:
        one.write_text(header)
        other.write_text(source)


def _prefix(path: Path) -> str:
    if path.suffix != ".c":
        found = path.suffix or "no ending"
        raise InputError(path, expected="a name in .c", found=found, fix="rename it")
    prefix = re.sub(r"[-. ]", "_", path.stem)
    if not _NAME.fullmatch(prefix):
        raise InputError(
            path,
            expected="a name that functions of C can begin with",
            found=repr(path.stem),
            fix="begin with a letter, and use letters, digits and - alone",
        )
    if prefix.split("_")[0] == "run":
        raise InputError(
            path,
            expected="a name that no function of a layer begins with",
            found=repr(path.stem),
            fix=f"rename it, say to net_{path.stem}.c",
        )
    if _STANDARD.fullmatch(path.stem):
        raise InputError(
            path,
            expected="a name that no header of C has",
            found=repr(path.stem),
            fix=f"rename it, say to {path.stem}_net.c",
        )
    return prefix


def _header(model: ModelFile, prefix: str, arena_bytes: int) -> str:
    upper, graph = prefix.upper(), model.graph
    sizes = [("input", graph.input.shape)]
    sizes += zip(_names(model), (graph.values[name].shape for name in graph.outputs), strict=True)
    parts = []
    if (spec := model.image_spec) and spec.of_images:
        bytes_ = prod(spec.size) * len(spec.mean)
        said = _pixels(spec, of_person=model.skeleton is not None)
        parts.append(
            _IMAGE.format(prefix=prefix, upper=upper, outputs=_outputs(model), pixels=said, bytes=bytes_)
        )
        parts.append(_PREPARE.format(prefix=prefix, upper=upper))
    if _classifies(model):
        given = "probabilities" if gives_probabilities(model) else "scores"
        parts.append(_TOP.format(prefix=prefix, given=given))
        if given == "scores":
            parts.append(_SOFTMAX.format(prefix=prefix, upper=upper, name=_names(model)[0].upper()))
    run = _RUN.format(prefix=prefix, outputs=_outputs(model))
    return _header_of(model, prefix, _IN_FLOATS, arena_bytes, sizes, run, parts)


def _pixels(spec: InputSpec, *, of_person: bool) -> str:
    """Return the comment that says what pixels are."""
    (height, width), (tall, wide) = spec.size, spec.resize
    whole = f"resized to {wide} x {tall}, whatever its proportions"
    if spec.keep_aspect and tall == wide:
        whole = f"resized in its own proportions until its shorter side is {tall}"
    elif spec.keep_aspect:
        whole = f"resized in its own proportions until it just covers {wide} x {tall}"
    if spec.keep_aspect or spec.size != spec.resize:
        whole += ", and its middle is cut out"
    image = "An image, a square around one person," if of_person else "An image"
    colours = "red, green and blue of each together" if len(spec.mean) == 3 else "grey"
    text = (
        f"Pixels: {width} x {height} (width x height), rows from the top, bytes of 0 to 255, {colours}. "
        f"{image} is {whole}. Where both sides shrink, a pixel is the mean of the area that it covers, else "
        "it is interpolated between its neighbours. Pixels that are made otherwise give other answers."
    )
    return textwrap.fill(f"/* {text} */", _WIDTH, subsequent_indent=" * ")


def _source(model: ModelFile, path: Path, prefix: str, layers: Layers) -> str:
    after_row = layers.row_cells
    taps = f"static cell *const taps = arena + {after_row}; /* signs under a window */\n" * (
        layers.taps_cells > 0
    )
    row = "static cell *const row = arena; /* the channels of the pixel that is made */\n" * (
        len(layers.functions) > 0
    )
    memory = (
        f"static cell arena[{prefix.upper()}_ARENA_BYTES / {CELL}];\n{row}{taps}"
        f"static cell *const maps = arena + {after_row + layers.taps_cells};"
    )
    functions = [*layers.functions, *_entries(model, prefix, layers)]
    includes = f'{_WRITTEN}#include "{path.stem}.h"'
    if any("INFINITY" in text for text in (*layers.constants.lines, *layers.functions)):
        includes = f"#include <math.h>\n\n{includes}"
    return _source_of(includes, "kernels.c", memory, layers.constants, functions)


def _entries(model: ModelFile, prefix: str, layers: Layers) -> Iterator[str]:
    """Yield the functions that the header declares, and what they share."""
    first, *_, last = layers.program.layers
    outputs = [Map.of(instruction.arguments["buffer"]) for instruction in last.instructions]
    names = _names(model)
    handed = [
        f"{'hand_out_signs' if map.signs else 'hand_out'}({name}, {map.start}, {map.channels}, {map.pixels});"
        for name, map in zip(names, outputs, strict=True)
    ]
    body = "\n".join(f"    {line}" for line in (*layers.calls, *handed))
    yield f"static void run({_outputs(model)})\n{{\n{body}\n}}"
    x = Map.of(first.instructions[0].arguments["buffer"])
    size = f"{x.channels}, {x.pixels}"
    yield (
        f"void {prefix}_run(const float *input, {_outputs(model)})\n{{\n"
        f"    lay_out({x.start}, input, {size});\n    run({', '.join(names)});\n}}"
    )
    if (spec := model.image_spec) and spec.of_images:
        mean, deviation = (", ".join(map(real, values)) for values in (spec.mean, spec.std))
        yield (
            f"void {prefix}_run_image(const uint8_t *pixels, {_outputs(model)})\n{{\n"
            f"    static const float mean[] = {{{mean}}}, deviation[] = {{{deviation}}};\n"
            f"    lay_out_image({x.start}, pixels, mean, deviation, {size});\n"
            f"    run({', '.join(names)});\n}}"
        )
        yield _prepare(prefix, spec)
    if _classifies(model):
        yield from _of_classes(model, prefix)
    yield from _of_labels(model, prefix)


def _prepare(prefix: str, spec: InputSpec) -> str:
    rule = (*spec.size, *spec.resize, int(spec.keep_aspect), len(spec.mean))
    return (
        f"int {prefix}_prepare(const uint8_t *image, int32_t height, int32_t width, "
        f"{prefix}_format format, uint8_t *pixels)\n{{\n"
        f"    static const image_rule rule = {{{', '.join(map(str, rule))}}};\n"
        f"    return prepare(pixels, &rule, image, height, width, (int32_t)format);\n}}"
    )


def _of_labels(model: ModelFile, prefix: str) -> Iterator[str]:
    if labels := _labels(model):
        quoted = ",\n".join(map(_quoted, labels))
        yield f"const char *const {prefix}_labels[{len(labels)}] = {{\n{textwrap.indent(quoted, '    ')}\n}};"


def _of_classes(model: ModelFile, prefix: str) -> Iterator[str]:
    count = model.graph.values[model.graph.outputs[0]].shape[0]
    yield (
        f"void {prefix}_top(const float *scores, int32_t k, int32_t *classes)\n{{\n"
        f"    top_of(classes, k, scores, {count});\n}}"
    )
    if not gives_probabilities(model):
        yield (
            f"void {prefix}_softmax(const float *scores, float *probabilities)\n{{\n"
            f"    softmax((cell *)probabilities, (const cell *)scores, {count});\n}}"
        )


def _classifies(model: ModelFile) -> bool:
    return model.skeleton is None and len(model.graph.values[model.graph.outputs[0]].shape) == 1


def _labels(model: ModelFile) -> tuple[str, ...]:
    return model.skeleton.keypoints if model.skeleton else model.labels


def _quoted(text: str) -> str:
    """Return text as a string of C; what is not printable ASCII as octal bytes of UTF-8."""
    octets = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(octets)}"'


def _outputs(model: ModelFile, kind: str = "float") -> str:
    return ", ".join(f"{kind} *{name}" for name in _names(model))


def _names(model: ModelFile) -> list[str]:
    """Return a name for each output: as the network calls it, else numbered from the second on."""
    names: dict[int, str] = {}
    for path, number in _leaves(model.called.outputs):
        named = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in path]
        names.setdefault(number, "_".join(["output", *named]))
    count = len(model.graph.outputs)
    numbered = ["output", *(f"output_{i}" for i in range(2, count + 1))]
    given = [names.get(i, numbered[i]) for i in range(count)]
    clear = isinstance(model.called.outputs, dict) and len({name.upper() for name in given}) == count
    return given if clear else numbered


def _leaves(structure: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the outputs of a structure, each with the names and numbers that lead to it."""
    if isinstance(structure, int):
        yield path, structure
    parts = enumerate(structure) if isinstance(structure, list | tuple) else ()
    for name, part in structure.items() if isinstance(structure, dict) else parts:
        yield from _leaves(part, (*path, str(name)))


def _kernels(text: str, source_file: str) -> list[str]:
    """Return the definitions of a file that a text needs, and those that they need, in their order."""
    source = files("bitfactor.targets.c99").joinpath(source_file).read_text()
    blocks = source.removesuffix("\n").split("\n\n\n")
    needed: list[str] = []
    for block in reversed(blocks):  # which stand behind what they need
        functions = re.findall(r"^(?:static|APART) (?:inline )?\w+ (\w+\()", block, re.MULTILINE)
        if not functions or any(re.search(rf"\b{re.escape(name)}", text) for name in functions):
            needed.insert(0, block)
            text += block
    return needed


_FOR_SPEED = """\
#if defined(ARDUINO) && defined(__GNUC__)
#pragma GCC optimize("O3") /* where Arduino compiles for size */
#endif
"""

_WRITTEN = "/* Layers and weights, written by bitfactor. */\n\n"
_IN_FLOATS = "A binary neural network as C99, written by bitfactor. It needs no library and no malloc."
_IN_INTEGERS = (
    "A binary neural network in integers as C99, written by bitfactor: no library, no malloc, no float."
)

_HEADER = """\
/* {what} */
#ifndef {upper}_H
#define {upper}_H

#include <limits.h>
#include <stdint.h>

#if INT_MAX < 2147483647
#error "The network needs an int of 32 bits."
#endif

#ifdef __cplusplus
extern "C" {{
#endif

/* The static arena: all RAM that the network takes, beside the stack. */
#define {upper}_ARENA_BYTES {arena_bytes}
{sizes}

{run}
{parts}
#ifdef __cplusplus
}}
#endif

#endif /* {upper}_H */
"""

_RUN = """\
/* Runs one input, in torch's order (channels, height, width). Calls share the arena: one at a time. */
void {prefix}_run(const float *input, {outputs});"""

_RUN_INTEGERS = """\
{said}
/* Outputs are in torch's order (channels, height, width); 1 stands for {scales}.
 * Calls share the arena: one at a time. */
{run};"""

_INTEGERS = "/* The input: rows of pixels, the channels of each together; 1 stands for {:.9g}. */"

_IMAGE = """
{pixels}
#define {upper}_PIXELS_SIZE {bytes}

/* Runs such pixels. */
void {prefix}_run_image(const uint8_t *pixels, {outputs});
"""

_PREPARE = """
/* How the pixels of an image lie: bytes in this order, grey, or 16 bits a pixel, the low byte first. */
typedef enum {{ {upper}_RGB, {upper}_BGR, {upper}_GREY, {upper}_RGB565 }} {prefix}_format;

/* Makes such pixels of an image, bit for bit as Python makes them. Returns 1, or 0 where a side is not 1 to
 * 32768, or one becomes longer than 2^22. */
int {prefix}_prepare(const uint8_t *image, int32_t height, int32_t width, {prefix}_format format,
    uint8_t *pixels);
"""

_TOP = """
/* The classes of the k largest of the {given}, the largest first. */
void {prefix}_top(const float *{given}, int32_t k, int32_t *classes);
"""

_SOFTMAX = """
/* The probabilities that the scores stand for, {upper}_{name}_SIZE of them; not in place. */
void {prefix}_softmax(const float *scores, float *probabilities);
"""

_LABELS = """
/* What the channels of the output stand for. */
extern const char *const {prefix}_labels[{count}];
"""
