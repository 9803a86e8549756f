"""Operations on each number by itself, which follow others in registers."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.format.operations.operation import (
    FLOAT,
    FLOATS,
    NUMBER,
    Array,
    Float,
    Node,
    Onnx,
    Operation,
    Pixelwise,
    Shape,
    bad,
    cut,
    expect_tensor,
    exponential,
    fma,
    gelu,
    logarithm,
    onnx_channels,
    spread,
)
from bitfactor.format.program import Buffer, Instruction

_SMALLEST_NORMAL = np.finfo(np.float32).tiny
_LARGEST = float(np.finfo(np.float32).max)


def _over(parameter: Array, x: Array) -> Array:
    """(C,) -> (C, 1, ...), to broadcast against x (N, C, ...)."""
    return spread(parameter, x.ndim - 1)


class Threshold(Pixelwise):
    inputs = (NUMBER,)
    dtype = "bit"
    tensors = {"threshold": FLOATS, "direction": (np.int8,)}

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_tensor(node, "threshold", x[:1])
        expect_tensor(node, "direction", x[:1])
        if not np.isin(node.tensors["direction"], (-1, 1)).all():
            raise bad(node, "direction of -1 and +1", str(np.unique(node.tensors["direction"])[:8].tolist()))
        if np.isnan(node.tensors["threshold"]).any():
            raise bad(node, "thresholds that are numbers", "NaN")
        return x

    def reference(self, node: Node, x: Array) -> NDArray[np.int8]:
        """+1 where x > threshold, or x < threshold for direction -1; else -1."""
        direction = _over(node.tensors["direction"], x).astype(np.float32)
        passed = direction * x.astype(np.float32) > direction * _over(node.tensors["threshold"], x)
        return np.where(passed, np.int8(1), np.int8(-1))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        """Compare direction * x with direction * threshold; at a tie the sign is -1.

        QONNX's sign is +1 at 0, so there the first number beyond the threshold is subtracted. Beyond 0 it is
        the smallest normal one: a runtime that takes smaller ones for 0 then still gives sign(0) = -1.
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

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        """Both x > t, and x < t for direction -1, are direction * x > direction * t."""
        direction = node.tensors["direction"].astype(np.float32)
        threshold = direction * node.tensors["threshold"]
        return Instruction.of("signs", buffer=buffer, direction=direction, threshold=threshold)


class Scale(Pixelwise):
    inputs = (NUMBER,)
    tensors = {"alpha": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_tensor(node, "alpha", x[:1], x)
        return x

    def reference(self, node: Node, x: Array) -> Float:
        return np.asarray(x.astype(np.float32) * _over(node.tensors["alpha"], x))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        b.emit("Mul", [x, onnx_channels(b, node, "alpha", len(b.shape(node.name)))], node.name)

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        return Instruction.of("scale", alpha=_pixels(node.tensors["alpha"]))


def _pixels(parameter: Array) -> Array:
    """(C, ...) -> (pixels, C)."""
    return parameter.reshape(len(parameter), -1).T


class Affine(Pixelwise):
    tensors = {"scale": FLOATS, "shift": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_tensor(node, "scale", x[:1], x)
        expect_tensor(node, "shift", x[:1], x)
        return x

    def reference(self, node: Node, x: Float) -> Float:
        return fma(x, _over(node.tensors["scale"], x), _over(node.tensors["shift"], x))

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        scaled = b.emit("Mul", [x, onnx_channels(b, node, "scale", len(b.shape(node.name)))])
        b.emit("Add", [scaled, onnx_channels(b, node, "shift", len(b.shape(node.name)))], node.name)

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        return Instruction.of(
            "affine", scale=_pixels(node.tensors["scale"]), shift=_pixels(node.tensors["shift"])
        )


class Prelu(Pixelwise):
    tensors = {"slope": FLOATS}

    def infer(self, node: Node, x: Shape) -> Shape:
        expect_tensor(node, "slope", x[:1])
        return x

    def reference(self, node: Node, x: Float) -> Float:
        return np.where(x > 0, x, _over(node.tensors["slope"], x) * x)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        b.emit("PRelu", [x, onnx_channels(b, node, "slope", len(b.shape(node.name)))], node.name)

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        return Instruction.of("prelu", slope=node.tensors["slope"])


class Clip(Pixelwise):
    attributes = ("lower", "upper")

    def infer(self, node: Node, x: Shape) -> Shape:
        lower, upper = node.attributes["lower"], node.attributes["upper"]
        if (
            not all(isinstance(bound, float) and np.isfinite(bound) for bound in (lower, upper))
            or lower > upper
        ):
            raise bad(node, "lower and upper as numbers, in this order", f"{lower!r} and {upper!r}")
        return x

    def reference(self, node: Node, x: Float) -> Float:
        return cut(x, node.attributes["lower"], node.attributes["upper"])

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        b.emit("Clip", [x, *(b.number(node.attributes[bound]) for bound in ("lower", "upper"))], node.name)

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        return Instruction.of("clip", lower=node.attributes["lower"], upper=node.attributes["upper"])


class Function(Pixelwise):
    """A function of each number alone, which ONNX and the program have by the same name; of a cut number."""

    def __init__(
        self, name: str, of: Callable[[Float], Float], bounds: tuple[float, float] | None = None
    ) -> None:
        self.onnx_op, self.kind, self.of, self.bounds = name, name.lower(), of, bounds

    def onnx(self, b: Onnx, node: Node, *inputs: Any, **_: Any) -> None:
        if self.bounds is not None:
            inputs = (b.emit("Clip", [*inputs, *map(b.number, self.bounds)]),)
        b.emit(self.onnx_op, inputs, node.name)

    def reference(self, node: Node, x: Float) -> Float:
        return self.of(x)


FUNCTIONS: dict[str, Operation] = {
    "relu": Function("Relu", lambda x: np.where(x > 0, x, np.float32(0))),
    "sigmoid": Function("Sigmoid", lambda x: np.float32(1) / (np.float32(1) + exponential(-x))),
    "exp": Function("Exp", exponential, (-87, 88)),
    "log": Function("Log", logarithm, (float(_SMALLEST_NORMAL), _LARGEST)),
    "sqrt": Function("Sqrt", lambda x: np.sqrt(np.where(x > 0, x, np.float32(0))), (0, _LARGEST)),
    "reciprocal": Function("Reciprocal", lambda x: np.float32(1) / x),
}


class Gelu(Pixelwise):
    kind = "gelu"

    def reference(self, node: Node, x: Float) -> Float:
        return gelu(x)

    def onnx(self, b: Onnx, node: Node, x: str) -> None:
        """ONNX has it from opset 20 on; here it is made of Erf."""
        beyond = b.emit("Erf", [b.emit("Mul", [x, b.number(float(np.sqrt(0.5)))])])
        half = b.emit("Mul", [x, b.number(0.5)])
        b.emit("Mul", [half, b.emit("Add", [beyond, b.number(1)])], node.name)


class Paired(Pixelwise):
    """A function of a number and its partner in a second value."""

    inputs = (FLOAT, FLOAT)

    def __init__(self, kind: str, onnx_op: str, of: Callable[[Float, Float], Float]) -> None:
        self.kind, self.onnx_op, self.of = kind, onnx_op, of

    def infer(self, node: Node, x: Shape, y: Shape) -> Shape:
        if y not in (x, (*x[:1], *[1] * (len(x) - 1))):
            expected = "a second input of the first one's shape, or one value per channel"
            raise bad(node, expected, f"{x} and {y}")
        return x

    def reference(self, node: Node, x: Float, y: Float) -> Float:
        return self.of(x, y)

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        return Instruction.of(self.kind, buffer=buffer)
