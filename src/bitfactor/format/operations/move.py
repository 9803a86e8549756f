"""Operations that compute nothing: who goes where."""

from collections.abc import Callable
from math import prod

import numpy as np

from bitfactor.format.operations.operation import (
    FLOAT,
    Array,
    Float,
    Node,
    Onnx,
    Operation,
    Place,
    Shape,
    bad,
    expect_map,
    integers,
    plain,
)
from bitfactor.format.program import Instruction


def gathered(move: Callable[[Node, Array], Array]) -> Callable[[Node, Place], Instruction]:
    """Return the instruction of any move: run on the places of the elements, it tells who goes where.

    A place is that in the order (pixels, channels) of x.
    """

    def rows(node: Node, place: Place) -> Instruction:
        x, y = place.shapes[0], place.shape
        places = np.arange(prod(x), dtype=np.int32).reshape(-1, x[0]).T.reshape(1, *x)
        indices = move(node, places).reshape(y[0], -1).T
        return Instruction.of("gather", source=place.sources[0], indices=indices)

    return rows


def _infer_concat(node: Node, *shapes: Shape) -> Shape:
    if any(shape[1:] != shapes[0][1:] for shape in shapes):
        raise bad(node, "inputs that differ in their channels alone", str(list(shapes)))
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _concat(node: Node, *xs: Float) -> Float:
    return np.concatenate(xs, axis=1)


def _concat_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of("concat", sources=place.sources)


CONCAT = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    variadic=True,
    infer=_infer_concat,
    reference=_concat,
    onnx=plain("Concat", axis=1),
    rows=_concat_rows,
)


def _infer_upsample_nearest(node: Node, x: Shape) -> Shape:
    height, width = integers(node, "scale", 2, 1)
    expect_map(node, x)
    return (x[0], x[1] * height, x[2] * width)


def _upsample_nearest(node: Node, x: Float) -> Float:
    height, width = node.attributes["scale"]
    return x.repeat(height, axis=2).repeat(width, axis=3)


def _onnx_upsample_nearest(b: Onnx, node: Node, x: str) -> None:
    scales = b.constant(np.array([1, 1, *node.attributes["scale"]], np.float32), f"{node.name}:scales")
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    b.emit("Resize", [x, "", scales], node.name, how)


def _upsample_nearest_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of(
        "upsample_nearest",
        source=place.sources[0],
        in_size=place.shapes[0][1:],
        channels=place.shape[0],
        scale=node.attributes["scale"],
    )


UPSAMPLE_NEAREST = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=("scale",),
    infer=_infer_upsample_nearest,
    reference=_upsample_nearest,
    onnx=_onnx_upsample_nearest,
    rows=_upsample_nearest_rows,
)


def _infer_flatten(node: Node, x: Shape) -> Shape:
    return (prod(x),)


def _flatten(node: Node, x: Float) -> Float:
    return x.reshape(len(x), -1)


def _flatten_rows(node: Node, place: Place) -> Instruction:
    return Instruction.of("flatten", source=place.sources[0])


FLATTEN = Operation(
    (FLOAT,), "float32", _infer_flatten, _flatten, plain("Flatten", axis=1), rows=_flatten_rows
)


def _infer_reshape(node: Node, x: Shape) -> Shape:
    """One length may be -1: what is left."""
    shape, size = node.attributes["shape"], prod(x)
    if not isinstance(shape, tuple) or not shape or not all(isinstance(n, int) for n in shape):
        raise bad(node, "a shape as integers", repr(shape))
    known = prod(n for n in shape if n != -1)
    whole = tuple(size // max(known, 1) if n == -1 else n for n in shape)
    if shape.count(-1) > 1 or min(whole) < 1 or prod(whole) != size:
        raise bad(node, f"a shape of {size} elements", repr(shape))
    return whole


def _reshape(node: Node, x: Float) -> Float:
    return x.reshape(len(x), *node.attributes["shape"])


def _onnx_reshape(b: Onnx, node: Node, x: str) -> None:
    shape = b.constant(np.array([0, *node.attributes["shape"]]), f"{node.name}:shape")  # 0: as it is
    b.emit("Reshape", [x, shape], node.name)


RESHAPE = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=("shape",),
    infer=_infer_reshape,
    reference=_reshape,
    onnx=_onnx_reshape,
    rows=gathered(_reshape),
)


def _infer_permute(node: Node, x: Shape) -> Shape:
    order = integers(node, "order", len(x), 0)
    if sorted(order) != list(range(len(x))):
        raise bad(node, f"each of the axes 0 to {len(x) - 1} once", str(order))
    return tuple(x[axis] for axis in order)


def _permute(node: Node, x: Float) -> Float:
    return x.transpose(0, *(axis + 1 for axis in node.attributes["order"]))


def _onnx_permute(b: Onnx, node: Node, x: str) -> None:
    b.emit("Transpose", [x], node.name, {"perm": [0, *(axis + 1 for axis in node.attributes["order"])]})


PERMUTE = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=("order",),
    infer=_infer_permute,
    reference=_permute,
    onnx=_onnx_permute,
    rows=gathered(_permute),
)


def _infer_slice(node: Node, x: Shape) -> Shape:
    axis, start, stop, step = integers(node, "range", 4, 0)
    if axis >= len(x) or step < 1 or not start < stop <= x[axis]:
        raise bad(node, f"(axis, start, stop, step) inside {x}", str(node.attributes["range"]))
    return (*x[:axis], len(range(start, stop, step)), *x[axis + 1 :])


def _slice(node: Node, x: Float) -> Float:
    axis, start, stop, step = node.attributes["range"]
    return np.asarray(x[(slice(None),) * (axis + 1) + (slice(start, stop, step),)])


def _onnx_slice(b: Onnx, node: Node, x: str) -> None:
    axis, start, stop, step = node.attributes["range"]
    bounds = (b.constant(np.array([n]), f"integer:{n}") for n in (start, stop, axis + 1, step))
    b.emit("Slice", [x, *bounds], node.name)


SLICE = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=("range",),
    infer=_infer_slice,
    reference=_slice,
    onnx=_onnx_slice,
    rows=gathered(_slice),
)
