"""Operations on each number by itself, which follow others in registers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.operations.arithmetic import cut, exponential, fma, gelu, logarithm
from bitfactor.format.operations.operation import (
    FLOAT,
    FLOATS,
    NUMBER,
    Array,
    Float,
    Node,
    Onnx,
    Operation,
    Shape,
    bad,
    expect_tensor,
    plain,
    same,
    spread,
)
from bitfactor.format.program import Buffer, Instruction

_SMALLEST_NORMAL = np.finfo(np.float32).tiny


def _onnx_channels(b: Onnx, node: Node, role: str) -> str:
    """Store a tensor (C,) as (C, 1, ...), so that it broadcasts over the node's value."""
    return b.constant(spread(node.tensors[role], len(b.shape(node.name))), f"{node.name}:{role}")


def _over(parameter: Array, x: Array) -> Array:
    """(C,) -> (C, 1, ...), to broadcast against x (N, C, ...)."""
    return spread(parameter, x.ndim - 1)


def _alone(kind: str) -> Callable[[Node, Buffer | None], Instruction]:
    """Return the stage of an operation without parameters."""
    return lambda node, buffer: Instruction.of(kind)


def _paired(kind: str) -> Callable[[Node, Buffer | None], Instruction]:
    """Return the stage of an operation that reads a second value."""
    return lambda node, buffer: Instruction.of(kind, buffer=buffer)


def _infer_threshold(node: Node, x: Shape) -> Shape:
    expect_tensor(node, "threshold", x[:1])
    expect_tensor(node, "direction", x[:1])
    if not np.isin(node.tensors["direction"], (-1, 1)).all():
        raise bad(node, "direction of -1 and +1", str(np.unique(node.tensors["direction"])[:8].tolist()))
    if np.isnan(node.tensors["threshold"]).any():
        raise bad(node, "thresholds that are numbers", "NaN")
    return x


def _threshold(node: Node, x: Array) -> NDArray[np.int8]:
    """+1 where x > threshold, or x < threshold for direction -1; else -1."""
    direction = _over(node.tensors["direction"], x).astype(np.float32)
    passed = direction * x.astype(np.float32) > direction * _over(node.tensors["threshold"], x)
    return np.where(passed, np.int8(1), np.int8(-1))


def _onnx_threshold(b: Onnx, node: Node, x: str) -> None:
    """Compare direction * x with direction * threshold; at a tie the sign is -1.

    QONNX's sign is +1 at 0, so there the first number beyond the threshold is subtracted. Beyond 0 it is the
    smallest normal one: a runtime that takes smaller ones for 0 then still gives sign(0) = -1.
    """
    direction, threshold = node.tensors["direction"].astype(np.float32), node.tensors["threshold"]
    dimensions = len(b.shape(node.name))
    if (direction != direction[0]).any():
        x = b.emit("Mul", [x, b.constant(spread(direction, dimensions), f"{node.name}:direction")])
        direction, threshold = np.ones_like(direction), direction * threshold
    if b.form == "qonnx":
        with np.errstate(over="ignore"):  # beyond the largest number is infinity
            beyond = np.nextafter(threshold, direction * np.float32(np.inf))
        threshold = np.where(threshold == 0, direction * _SMALLEST_NORMAL, beyond)
    border = b.constant(spread(threshold, dimensions), f"{node.name}:threshold")
    rising = direction[0] > 0
    if b.form == "qonnx":
        b.bipolar(b.emit("Sub", [x, border] if rising else [border, x]), node.name)
    else:
        b.where_positive(b.emit("Greater" if rising else "Less", [x, border]), node.name)


def _threshold_stage(node: Node, buffer: Buffer | None) -> Instruction:
    """Both x > t, and x < t for direction -1, are direction * x > direction * t."""
    direction = node.tensors["direction"].astype(np.float32)
    threshold = direction * node.tensors["threshold"]
    return Instruction.of("signs", buffer=buffer, direction=direction, threshold=threshold)


THRESHOLD = Operation(
    inputs=(NUMBER,),
    dtype="bit",
    tensors={"threshold": FLOATS, "direction": (np.int8,)},
    infer=_infer_threshold,
    reference=_threshold,
    onnx=_onnx_threshold,
    stage=_threshold_stage,
)


def _infer_scale(node: Node, x: Shape) -> Shape:
    expect_tensor(node, "alpha", x[:1], x)
    return x


def _scale(node: Node, x: Array) -> Float:
    return np.asarray(x.astype(np.float32) * _over(node.tensors["alpha"], x))


def _onnx_scale(b: Onnx, node: Node, x: str) -> None:
    b.emit("Mul", [x, _onnx_channels(b, node, "alpha")], node.name)


def _scale_stage(node: Node, buffer: Buffer | None) -> Instruction:
    return Instruction.of("scale", alpha=_pixels(node.tensors["alpha"]))


SCALE = Operation(
    inputs=(NUMBER,),
    dtype="float32",
    tensors={"alpha": FLOATS},
    infer=_infer_scale,
    reference=_scale,
    onnx=_onnx_scale,
    stage=_scale_stage,
)


def _infer_affine(node: Node, x: Shape) -> Shape:
    expect_tensor(node, "scale", x[:1], x)
    expect_tensor(node, "shift", x[:1], x)
    return x


def _affine(node: Node, x: Float) -> Float:
    return fma(x, _over(node.tensors["scale"], x), _over(node.tensors["shift"], x))


def _onnx_affine(b: Onnx, node: Node, x: str) -> None:
    scaled = b.emit("Mul", [x, _onnx_channels(b, node, "scale")])
    b.emit("Add", [scaled, _onnx_channels(b, node, "shift")], node.name)


def _pixels(parameter: Array) -> Array:
    """(C, ...) -> (pixels, C)."""
    return parameter.reshape(len(parameter), -1).T


def _affine_stage(node: Node, buffer: Buffer | None) -> Instruction:
    return Instruction.of(
        "affine", scale=_pixels(node.tensors["scale"]), shift=_pixels(node.tensors["shift"])
    )


AFFINE = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    tensors={"scale": FLOATS, "shift": FLOATS},
    infer=_infer_affine,
    reference=_affine,
    onnx=_onnx_affine,
    stage=_affine_stage,
)


def _relu(node: Node, x: Float) -> Float:
    return np.where(x > 0, x, np.float32(0))


RELU = Operation((FLOAT,), "float32", same, _relu, plain("Relu"), stage=_alone("relu"))


def _infer_prelu(node: Node, x: Shape) -> Shape:
    expect_tensor(node, "slope", x[:1])
    return x


def _prelu(node: Node, x: Float) -> Float:
    return np.where(x > 0, x, _over(node.tensors["slope"], x) * x)


def _onnx_prelu(b: Onnx, node: Node, x: str) -> None:
    b.emit("PRelu", [x, _onnx_channels(b, node, "slope")], node.name)


def _prelu_stage(node: Node, buffer: Buffer | None) -> Instruction:
    return Instruction.of("prelu", slope=node.tensors["slope"])


PRELU = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    tensors={"slope": FLOATS},
    infer=_infer_prelu,
    reference=_prelu,
    onnx=_onnx_prelu,
    stage=_prelu_stage,
)


def _infer_clip(node: Node, x: Shape) -> Shape:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    if not all(isinstance(bound, float) and np.isfinite(bound) for bound in (lower, upper)) or lower > upper:
        raise bad(node, "lower and upper as numbers, in this order", f"{lower!r} and {upper!r}")
    return x


def _clip(node: Node, x: Float) -> Float:
    return cut(x, node.attributes["lower"], node.attributes["upper"])


def _onnx_clip(b: Onnx, node: Node, x: str) -> None:
    b.emit("Clip", [x, *(b.number(node.attributes[bound]) for bound in ("lower", "upper"))], node.name)


def _clip_stage(node: Node, buffer: Buffer | None) -> Instruction:
    return Instruction.of("clip", lower=node.attributes["lower"], upper=node.attributes["upper"])


CLIP = Operation(
    inputs=(FLOAT,),
    dtype="float32",
    attributes=("lower", "upper"),
    infer=_infer_clip,
    reference=_clip,
    onnx=_onnx_clip,
    stage=_clip_stage,
)


def _sigmoid(node: Node, x: Float) -> Float:
    return np.float32(1) / (np.float32(1) + exponential(-x))


SIGMOID = Operation((FLOAT,), "float32", same, _sigmoid, plain("Sigmoid"), stage=_alone("sigmoid"))


def _function(compute: Callable[[Float], Float], kind: str, onnx: Callable[..., None]) -> Operation:
    """Return an operation that is a function of a number."""
    return Operation((FLOAT,), "float32", same, lambda node, x: compute(x), onnx, stage=_alone(kind))


def _square_root(x: Float) -> Float:
    return np.sqrt(np.where(x > 0, x, np.float32(0)))


def _reciprocal(x: Float) -> Float:
    return np.float32(1) / x


def _onnx_gelu(b: Onnx, node: Node, x: str) -> None:
    """ONNX has it from opset 20 on; here it is made of Erf."""
    beyond = b.emit("Erf", [b.emit("Mul", [x, b.number(float(np.sqrt(0.5)))])])
    half = b.emit("Mul", [x, b.number(0.5)])
    b.emit("Mul", [half, b.emit("Add", [beyond, b.number(1)])], node.name)


EXP = _function(exponential, "exp", plain("Exp"))
LOG = _function(logarithm, "log", plain("Log"))
SQRT = _function(_square_root, "sqrt", plain("Sqrt"))
RECIPROCAL = _function(_reciprocal, "reciprocal", plain("Reciprocal"))
GELU = _function(gelu, "gelu", _onnx_gelu)


def _infer_paired(node: Node, x: Shape, y: Shape) -> Shape:
    if y not in (x, (*x[:1], *[1] * (len(x) - 1))):
        raise bad(node, "a second input of the first one's shape, or one value per channel", f"{x} and {y}")
    return x


def _add(node: Node, x: Float, y: Float) -> Float:
    return np.asarray(x + y)


ADD = Operation((FLOAT, FLOAT), "float32", _infer_paired, _add, plain("Add"), stage=_paired("add"))


def _multiply(node: Node, x: Float, y: Float) -> Float:
    return np.asarray(x * y)


MULTIPLY = Operation(
    (FLOAT, FLOAT), "float32", _infer_paired, _multiply, plain("Mul"), stage=_paired("multiply")
)
