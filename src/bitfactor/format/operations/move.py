"""Operations that compute nothing: who goes where, and what the file holds, a constant or rows of a table."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from bitfactor.format.operations.operation import (
    FLOATS,
    Array,
    Float,
    Node,
    Onnx,
    Place,
    Rows,
    Shape,
    bad,
    expect_map,
    integers,
)
from bitfactor.format.program import Instruction

_PART = 1 << 16  # of places, looked at together
NUMBERED_BYTES = 16
"""What it takes for each element to say where a move puts it: places of 4 bytes, four times at most."""


class Move(Rows):
    """An operation whose `reference`, run on the places of the elements, tells who goes where.

    A place is that behind the first source in memory, in float32; -1 stands for the node's `value`. What lies
    side by side before and after is copied at once.
    """

    def rows(self, node: Node, place: Place) -> Instruction:
        first = min(place.sources, key=lambda source: source.offset)
        places = [
            _places(x) + np.int32((source.offset - first.offset) // 4)
            for source, x in zip(place.sources, place.shapes, strict=True)
        ]
        channels = place.shape[0]
        flat = self.reference(node, *places).reshape(channels, -1).T.ravel()
        run = _run_length(flat, channels)
        fill = float(node.attributes.get("value", 0.0))
        return Instruction.of(
            "gather",
            source=first,
            sources=place.sources,
            indices=flat[::run],
            run=run,
            channels=channels,
            fill=fill,
        )


def _places(x: Shape) -> Array:
    """Return the place in memory of each element of a value, (1, *x)."""
    return np.arange(prod(x), dtype=np.int32).reshape(-1, x[0]).T.reshape(1, *x)


def _run_length(places: Array, channels: int) -> int:
    """Return how many elements at a time lie side by side, a divisor of the channels."""
    run = channels
    for start, part in _parts(places):
        steps, first = np.diff(part), part[:-1]
        goes_on = np.where(first < 0, steps == 0, steps == 1)
        ends = np.flatnonzero(~goes_on) + 1 + start
        run = int(np.gcd.reduce([run, *np.unique(ends % channels).tolist()]))
    return run


def _parts(places: Array) -> Iterator[tuple[int, Array]]:
    """Yield parts, each with where it starts and the first of the next: what is made of one is small."""
    for start in range(0, len(places) - 1, _PART):
        yield start, places[start : start + _PART + 1]


def stays(node: Node, x: Shape, y: Shape) -> bool:
    """Whether an operation that has one input leaves each element where it is in memory."""
    if node.op not in MOVES or prod(x) != prod(y):
        return False
    places = MOVES[node.op].reference(node, _places(x)).reshape(y[0], -1).T.ravel()
    return all(bool((np.diff(part) == 1).all()) for _, part in _parts(places))


def _side_by_side(xs: Sequence[Float], axis: int) -> Float:
    """Join them; a constant has one sample for all."""
    samples = max(map(len, xs))
    return np.concatenate([np.broadcast_to(x, (samples, *x.shape[1:])) for x in xs], axis)


class Concat(Rows):
    variadic = True
    onnx_op = "Concat"
    onnx_attributes = {"axis": 1}

    def infer(self, node: Node, *shapes: Shape) -> Shape:
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise bad(node, "inputs that differ in their channels alone", str(list(shapes)))
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def reference(self, node: Node, *xs: Float) -> Float:
        return _side_by_side(xs, 1)

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of("concat", sources=place.sources)


class UpsampleNearest(Rows):
    attributes = ("scale",)

    def infer(self, node: Node, x: Shape) -> Shape:
        height, width = integers(node, "scale", 2, 1)
        expect_map(node, x)
        return (*x[:-2], x[-2] * height, x[-1] * width)

    def reference(self, node: Node, x: Float) -> Float:
        height, width = node.attributes["scale"]
        return x.repeat(height, axis=-2).repeat(width, axis=-1)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        scales = b.constant(
            np.array([*[1] * (len(b.shape(x)) - 1), *node.attributes["scale"]], np.float32),
            f"{node.name}:scales",
        )
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        b.emit("Resize", [x, "", scales], node.name, how)

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of(
            "upsample_nearest",
            source=place.sources[0],
            in_size=(prod(place.shapes[0][1:-1]), place.shapes[0][-1]),
            channels=place.shape[0],
            scale=node.attributes["scale"],
        )


class Flatten(Rows):
    kind = "flatten"
    onnx_op = "Flatten"
    onnx_attributes = {"axis": 1}

    def infer(self, node: Node, x: Shape) -> Shape:
        return (prod(x),)

    def reference(self, node: Node, x: Float) -> Float:
        return x.reshape(len(x), -1)


def _whole(node: Node, shape: Any, size: int) -> Shape:
    """Return the lengths of `size` elements; one may be -1: what is left."""
    if not isinstance(shape, tuple) or not shape or not all(isinstance(n, int) for n in shape):
        raise bad(node, "a shape as integers", repr(shape))
    known = prod(n for n in shape if n != -1)
    whole = tuple(size // max(known, 1) if n == -1 else n for n in shape)
    if shape.count(-1) > 1 or min(whole) < 1 or prod(whole) != size:
        raise bad(node, f"a shape of {size} elements", repr(shape))
    return whole


class Reshape(Move):
    attributes = ("shape",)

    def infer(self, node: Node, x: Shape) -> Shape:
        return _whole(node, node.attributes["shape"], prod(x))

    def reference(self, node: Node, x: Float) -> Float:
        return x.reshape(len(x), *node.attributes["shape"])

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        lengths = b.lengths(node, "shape", node.attributes["shape"])
        b.emit("Reshape", [x, b.whole([0, *lengths], f"{node.name}:shape")], node.name)  # 0: as it is


class Permute(Move):
    attributes = ("order",)

    def infer(self, node: Node, x: Shape) -> Shape:
        order = integers(node, "order", len(x), 0)
        if sorted(order) != list(range(len(x))):
            raise bad(node, f"each of the axes 0 to {len(x) - 1} once", str(order))
        return tuple(x[axis] for axis in order)

    def reference(self, node: Node, x: Float) -> Float:
        return x.transpose(0, *(axis + 1 for axis in node.attributes["order"]))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        b.emit("Transpose", [x], node.name, {"perm": [0, *(axis + 1 for axis in node.attributes["order"])]})


class Slice(Move):
    attributes = ("range",)

    def infer(self, node: Node, x: Shape) -> Shape:
        axis, start, stop, step = integers(node, "range", 4, 0)
        if axis >= len(x) or step < 1 or not start < stop <= x[axis]:
            raise bad(node, f"(axis, start, stop, step) inside {x}", str(node.attributes["range"]))
        return (*x[:axis], len(range(start, stop, step)), *x[axis + 1 :])

    def reference(self, node: Node, x: Float) -> Float:
        axis, start, stop, step = node.attributes["range"]
        return np.asarray(x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)])

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        axis, start, stop, step = b.lengths(node, "range", node.attributes["range"])
        bounds = (b.whole([n], f"integer:{n}") for n in (start, stop, int(axis) + 1, step))
        b.emit("Slice", [x, *bounds], node.name)


class Join(Move):
    variadic = True
    attributes = ("axis",)

    def infer(self, node: Node, *shapes: Shape) -> Shape:
        axis = node.attributes["axis"]
        if not isinstance(axis, int) or not 0 <= axis < len(shapes[0]):
            raise bad(node, f"an axis of {shapes[0]}", repr(axis))
        if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1:
            raise bad(node, f"inputs that differ in axis {axis} alone", str(list(shapes)))
        return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])

    def reference(self, node: Node, *xs: Float) -> Float:
        return _side_by_side(xs, node.attributes["axis"] + 1)

    def onnx(self, b: Onnx, node: Node, *xs: str) -> None:
        b.emit("Concat", xs, node.name, {"axis": node.attributes["axis"] + 1})


def axes_of(node: Node, x: Shape) -> list[int]:
    """Return the lengths of the axes that `groups` puts together: those of `split`, then the repeated ones.

    `split` has the lengths that the axes of memory, (..., C), are cut into, outermost first. `parts` says how
    many each is cut into. A length may be -1, once for an axis: what is left.
    """
    split, parts, memory = node.attributes["split"], node.attributes["parts"], (*x[1:], x[0])
    are_lengths = isinstance(split, tuple) and isinstance(parts, tuple)
    if not are_lengths or len(parts) != len(memory) or sum(parts) != len(split):
        raise bad(node, f"parts of each of {len(memory)} axes, and a length of each", f"{parts} and {split}")
    lengths: list[int] = []
    for count, length in zip(parts, memory, strict=True):
        if count == 0 and length != 1:
            raise bad(node, f"a split of axes {memory}", str(split))
        own = split[len(lengths) : len(lengths) + count]
        lengths += _whole(node, own, length) if count else ()
    return [*lengths, *node.attributes["repeats"]]


class Rearrange(Move):
    attributes = ("split", "parts", "repeats", "groups")

    def infer(self, node: Node, x: Shape) -> Shape:
        lengths, groups = axes_of(node, x), node.attributes["groups"]
        if sorted(axis for group in groups for axis in group) != list(range(len(lengths))) or not groups:
            raise bad(node, f"groups of each of the axes 0 to {len(lengths) - 1} once", str(groups))
        if any(not isinstance(n, int) or n < 1 for n in node.attributes["repeats"]):
            raise bad(node, "repeats of 1 or more", str(node.attributes["repeats"]))
        *pixels, channels = (prod(lengths[axis] for axis in group) for group in groups)
        return (channels, *pixels)

    def reference(self, node: Node, x: Array) -> Array:
        """Axes of memory, (..., C), are cut, repeated, ordered and put together to (..., C) again."""
        lengths, repeats = axes_of(node, x.shape[1:]), node.attributes["repeats"]
        own = lengths[: len(lengths) - len(repeats)]
        memory = np.moveaxis(x, 1, -1).reshape(len(x), *own, *[1] * len(repeats))
        order = [axis for group in node.attributes["groups"] for axis in group]
        moved = np.broadcast_to(memory, (len(x), *lengths)).transpose(0, *(axis + 1 for axis in order))
        channels, *pixels = self.infer(node, x.shape[1:])
        return np.moveaxis(moved.reshape(len(x), *pixels, channels), -1, 1)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        before, groups, repeats = b.shape(x), node.attributes["groups"], node.attributes["repeats"]

        def shaped(x: str, lengths: Sequence[int | str]) -> str:
            return b.emit("Reshape", [x, b.whole([0, *lengths], f"{node.name}:shape")])

        def ordered(
            x: str, axes: Sequence[object], wanted: Sequence[object], output: str | None = None
        ) -> str:
            order = [0, *(1 + axes.index(axis) for axis in wanted)]
            return b.emit("Transpose", [x], output, {"perm": order})

        lengths = axes_of(node, before)
        last = b.emit("Transpose", [x], attributes={"perm": [0, *range(2, len(before) + 1), 1]})
        x = shaped(last, [*_cut(b, node, x, lengths), *[1] * len(repeats)])
        if repeats:
            counts = np.array([1] * (1 + len(lengths) - len(repeats)) + list(repeats))
            x = b.emit("Tile", [x, b.constant(counts, f"{node.name}:repeats")])
        # Axes are put together where they are the last, whatever the lengths of those before, which stay: 0.
        # What a group is put together to is named by its place, since several may be empty.
        axes: list[object] = [*range(len(lengths))]
        names = [group[0] if len(group) == 1 else f"group {i}" for i, group in enumerate(groups)]
        for group, name in zip(groups, names, strict=True):
            if len(group) != 1:
                others = [axis for axis in axes if axis not in group]
                x = shaped(ordered(x, axes, [*others, *group]), [*[0] * len(others), -1 if group else 1])
                axes = [*others, name]
        ordered(x, axes, [names[-1], *names[:-1]], node.name)


def _cut(b: Onnx, node: Node, x: str, lengths: Sequence[int]) -> list[int | str]:
    """Return the lengths of `split` for a Reshape; 0, as it is, before the first axis that is cut."""
    parts, split = node.attributes["parts"], node.attributes["split"]
    stated = b.lengths(node, "split", split)
    found: list[int | str] = []
    left = True  # whether -1, what is left, may still stand there
    for i, count in enumerate(parts):
        own = stated[len(found) : len(found) + count]
        if count == 1:
            whole = all(n == 1 for n in parts[:i])
            own = [0 if whole else b.length(x, (i + 1) % len(parts))]
        elif left and -1 in own:
            left = False
        else:
            own = [lengths[len(found) + k] if n == -1 else n for k, n in enumerate(own)]
        found += own
    return found


class Take(Move):
    attributes = ("axis", "indices")

    def infer(self, node: Node, x: Shape) -> Shape:
        axis, indices = node.attributes["axis"], node.attributes["indices"]
        if not isinstance(axis, int) or not 0 <= axis < len(x):
            raise bad(node, f"an axis of {x}", repr(axis))
        known = range(x[axis])
        whole = isinstance(indices, tuple) and all(type(i) is int for i in indices)
        if not whole or not indices or not all(i in known for i in indices):
            raise bad(node, f"indices of 0 to {x[axis] - 1}", str(indices)[:60])
        return (*x[:axis], len(indices), *x[axis + 1 :])

    def reference(self, node: Node, x: Array) -> Array:
        taken: Array = np.take(x, node.attributes["indices"], node.attributes["axis"] + 1)
        return taken

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        indices = b.constant(np.array(node.attributes["indices"]), f"{node.name}:indices")
        b.emit("Gather", [x, indices], node.name, {"axis": node.attributes["axis"] + 1})


class Pad(Move):
    attributes = ("axis", "before", "after", "value")

    def infer(self, node: Node, x: Shape) -> Shape:
        axis, before, after = (node.attributes[name] for name in ("axis", "before", "after"))
        if not all(isinstance(n, int) and n >= 0 for n in (axis, before, after)) or axis >= len(x):
            raise bad(node, f"an axis of {x}, and lengths", f"{axis}, {before} and {after}")
        if not isinstance(node.attributes["value"], float) or not np.isfinite(node.attributes["value"]):
            raise bad(node, "a finite value", repr(node.attributes["value"]))
        return (*x[:axis], before + x[axis] + after, *x[axis + 1 :])

    def reference(self, node: Node, x: Array) -> Array:
        """Places, which are integers, are padded with that of no element."""
        widths = [(0, 0)] * x.ndim
        widths[node.attributes["axis"] + 1] = node.attributes["before"], node.attributes["after"]
        value = node.attributes["value"] if x.dtype.kind == "f" else -1
        padded: Array = np.pad(x, widths, constant_values=value)
        return padded

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        pads = np.zeros((2, len(b.shape(x)) + 1), np.int64)
        pads[:, node.attributes["axis"] + 1] = node.attributes["before"], node.attributes["after"]
        value = b.number(node.attributes["value"])
        b.emit("Pad", [x, b.constant(pads.ravel(), f"{node.name}:pads"), value], node.name)


MOVES: dict[str, Rows] = {
    "flatten": Flatten(),
    "reshape": Reshape(),
    "permute": Permute(),
    "rearrange": Rearrange(),
    "slice": Slice(),
}


class Constant(Rows):
    inputs = ()
    tensors = {"value": FLOATS}

    def infer(self, node: Node) -> Shape:
        return node.tensors["value"].shape

    def reference(self, node: Node) -> Float:
        return node.tensors["value"][None]

    def onnx(self, b: Onnx, node: Node) -> None:
        """A batch of one, which broadcasts; a constant that is joined must have that of the input."""
        b.samples(b.constant(node.tensors["value"][None], f"{node.name}:value"), node.name)

    def rows(self, node: Node, place: Place) -> Instruction:
        value = node.tensors["value"]
        return Instruction.of("constant", value=value.reshape(len(value), -1).T)


class Embedding(Rows):
    tensors = {"table": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        table = node.tensors["table"].shape
        if len(table) != 2 or table[0] > 1 << 24:
            raise bad(node, "a table (rows, channels) of 2^24 rows at most", str(table))
        return (table[1], *x[1:], x[0])

    def reference(self, node: Node, x: Float) -> Float:
        """(N, S, ...) -> (N, channels, ..., S): the row that each number stands for."""
        rows = np.clip(x, 0, len(node.tensors["table"]) - 1).astype(np.int64)
        return np.moveaxis(node.tensors["table"][np.moveaxis(rows, 1, -1)], -1, 1)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        rank = len(b.shape(x))
        within = b.emit("Clip", [x, b.number(0), b.number(len(node.tensors["table"]) - 1)])
        rows = b.emit("Cast", [within], attributes={"to": 7})  # onnx.TensorProto.INT64
        last = b.emit("Transpose", [rows], attributes={"perm": [0, *range(2, rank + 1), 1]})
        taken = b.emit("Gather", [b.constant(node.tensors["table"], f"{node.name}:table"), last])
        b.emit("Transpose", [taken], node.name, {"perm": [0, rank + 1, *range(1, rank + 1)]})

    def rows(self, node: Node, place: Place) -> Instruction:
        return Instruction.of("embedding", source=place.sources[0], table=node.tensors["table"])
