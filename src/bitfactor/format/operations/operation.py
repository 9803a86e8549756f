"""An operation: what it takes, what it gives, how it is computed, what it costs and what it is elsewhere.

Shapes are as `bitfactor.format.graph` has them. Here stands, to the last bit, the arithmetic of float32 that
all instruction sets share. Results are the same on every machine:

- `fma(a, b, c)` is a * b + c with a single rounding; any other operation rounds once by itself;
- a convolution's sum starts at the bias and takes one fma a tap, in the order (kh, kw, c). A linear layer's
  takes them in the order of the features. A tap outside the map counts as x = 0;
- `exponential` is a polynomial in fma, see there;
- a mean is the sum in the order (kh, kw), or of the pixels in row-major order, divided by their count.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import expect
from bitfactor.common.errors import InputError
from bitfactor.format.program import Buffer, Instruction, SlidingWindow

Array = NDArray[Any]
Float = NDArray[np.float32]
Shape = tuple[int, ...]
DTypes = tuple[type[np.generic], ...]

FLOAT, BIT, NUMBER = ("float32",), ("bit",), ("float32", "int32")
FLOATS: DTypes = (np.float32,)


@dataclass(frozen=True)
class Node:
    """One operation; its name is the name of the value that it gives.

    `inputs` are names of earlier values; `tensors` maps a role (weight, bias, threshold ...) to an array.

    Raises
    ------
    InputError
        If one of them is not that; whether they fit the operation is the graph's affair.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expect("Node(name)", self.name, str)
        expect("Node(op)", self.op, str)
        expect("Node(inputs)", self.inputs, tuple[str, ...])
        expect("Node(attributes)", self.attributes, Mapping[str, Any])
        expect("Node(tensors)", self.tensors, Mapping[str, Any])
        for role, tensor in self.tensors.items():
            expect(f"Node(tensors) {role!r}", tensor, np.ndarray)


@dataclass(frozen=True)
class Place:
    """Where a node of a program finds what it reads, and the shapes of that and of what it gives."""

    sources: tuple[Buffer, ...]
    shapes: tuple[Shape, ...]
    shape: Shape

    def window(self, node: Node, kernel: Sequence[int]) -> SlidingWindow:
        """Return the window that slides over the first source."""
        stride, padding = node.attributes["stride"], node.attributes["padding"]
        dilation = node.attributes.get("dilation", (1, 1))
        (in_h, in_w), (out_h, out_w) = self.shapes[0][-2:], self.shape[-2:]
        size = kernel[0], kernel[1]
        return SlidingWindow((in_h, in_w), (out_h, out_w), size, stride, padding[:2], dilation)

    @property
    def maps(self) -> int:
        """How many maps the window slides over, each by itself."""
        return prod(self.shapes[0][1:-2])


class Onnx(Protocol):
    """An ONNX graph in the making, see `bitfactor.targets.onnx.translate`."""

    form: Literal["standard", "qonnx"]

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        output: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Append a node and return the name of its value."""

    def constant(self, array: Array, name: str) -> str:
        """Store a constant and return its name."""

    def lengths(self, node: Node, attribute: str, own: Sequence[int]) -> list[int | str]:
        """Return integers of an attribute; names of what computes those that follow from the input's size."""

    def length(self, x: str, axis: int) -> int | str:
        """Return the length of an axis, or the name of what computes it where sizes are free."""

    def whole(self, lengths: Sequence[int | str], name: str) -> str:
        """Return the name of the lengths as one vector."""

    def number(self, value: float) -> str:
        """Store a float32 number and return its name."""

    def signs(self, signs: NDArray[np.int8], name: str) -> str:
        """Store -1 and +1 and return the name of their float32 value."""

    def samples(self, x: str, output: str) -> str:
        """Return x (1, ...) for each sample of the input."""

    def shape(self, name: str) -> Shape:
        """Return the shape of a value, without the batch dimension."""

    def where_positive(self, condition: str, output: str | None = None) -> str:
        """Return +1 where the condition holds, else -1."""

    def bipolar(self, x: str, output: str | None = None) -> str:
        """Return the sign of x that is +1 for 0."""


class Operation(ABC):
    """All that there is to know of an operation, except its kernels and how torch's become it.

    `inputs` is a tuple of the dtypes that each input may have; with `variadic`, the last may come any number
    of times. `tensors` (with the types that each may have) and `attributes` name what a node must carry.
    Where the weight may be float32, one of int8 comes with its `step`, and there may be the `range` of the
    input, see `bitfactor.format.low_precision`. An operation that ONNX has as it is names it in `onnx_op`.
    """

    inputs: tuple[tuple[str, ...], ...] = (FLOAT,)
    dtype: str = "float32"
    tensors: Mapping[str, DTypes] = {}
    attributes: tuple[str, ...] = ()
    variadic: bool = False
    commutes: bool = True  # whether two inputs may change places
    in_files: bool = True  # whether a file may hold it, and ONNX has it
    onnx_op: str
    onnx_attributes: Mapping[str, int] = {}

    def infer(self, node: Node, *shapes: Any, **_: Any) -> Shape:
        """Return the shape of the result, the first input's; raise InputError where things do not fit."""
        shape: Shape = shapes[0]
        return shape

    @abstractmethod
    def reference(self, node: Node, *inputs: Any, **_: Any) -> Array:
        """Compute it in numpy, shaped as in torch; signs are int8 of -1 and +1, sums int32.

        It is the specification that the compiled kernels are tested against.
        """

    def onnx(self, b: Onnx, node: Node, *inputs: Any, **_: Any) -> None:
        """Add it to an ONNX graph."""
        b.emit(self.onnx_op, inputs, node.name, self.onnx_attributes)

    def macs(self, node: Node, x: Shape, y: Shape) -> int:
        """Count the multiply-accumulates of a sample, for input x and result y."""
        return 0

    def tensors_of(self, node: Node) -> dict[str, DTypes]:
        """Return the tensors that `node` must carry, with their types."""
        tensors = {**self.tensors}
        if np.float32 in tensors.get("weight", ()):
            if "weight" in node.tensors and node.tensors["weight"].dtype == np.int8:
                tensors["step"] = FLOATS
            if "range" in node.tensors:
                tensors["range"] = FLOATS
        return tensors


class Rows(Operation):
    """An operation whose rows a program computes by an instruction of its own."""

    kind: str

    def rows(self, node: Node, place: Place) -> Instruction:
        """Return the instruction that gives its rows, of its first input alone."""
        return Instruction.of(self.kind, source=place.sources[0])


class Pixelwise(Operation):
    """An operation that follows another in registers, pixel by pixel."""

    kind: str

    def stage(self, node: Node, buffer: Buffer | None) -> Instruction:
        """Return the instruction; `buffer` is that of a second input, or of the signs that it gives."""
        return Instruction.of(self.kind)


def bad(node: Node, expected: str, found: str, fix: str = "export the model again") -> InputError:
    """Return the error of a node that does not fit."""
    return InputError(f"node {node.name!r} ({node.op})", expected=expected, found=found, fix=fix)


def expect_tensor(node: Node, role: str, *shapes: Shape) -> None:
    """Raise InputError unless the tensor has one of the shapes."""
    if node.tensors[role].shape not in shapes:
        raise bad(node, f"{role} shaped {' or '.join(map(str, shapes))}", str(node.tensors[role].shape))


_LARGEST = (1 << 31) - 1


def integers(node: Node, name: str, count: int, least: int) -> tuple[int, ...]:
    """Return an attribute of `count` integers, each `least` or more."""
    value = node.attributes[name]
    if (
        not isinstance(value, tuple)
        or len(value) != count
        or not all(isinstance(v, int) and least <= v <= _LARGEST for v in value)
    ):
        raise bad(node, f"{name} as {count} integers of {least} or more", repr(value))
    return value


def expect_map(node: Node, x: Shape) -> None:
    """Raise InputError unless x is a map (C, H, W), or several, (C, M, H, W)."""
    if len(x) not in (3, 4):
        raise bad(node, "an input shaped (C, H, W), or (C, M, H, W)", str(x))


def spread(tensor: Array, dimensions: int) -> Array:
    """(C,) -> (C, 1, ...) of so many dimensions; what has them already stays."""
    return tensor if tensor.ndim == dimensions else tensor.reshape(-1, *[1] * (dimensions - 1))


def onnx_channels(b: Onnx, node: Node, role: str, dimensions: int) -> str:
    """Store a tensor (C,) as (C, 1, ...) of so many dimensions, so that it broadcasts over a value."""
    return b.constant(spread(node.tensors[role], dimensions), f"{node.name}:{role}")


def window_size(node: Node, x: Shape, kernel: tuple[int, int], dilation: tuple[int, ...]) -> Shape:
    """(C, H, W) -> (H', W') of a sliding window, (C, M, H, W) -> (M, H', W') of one over each map.

    Padding is (top, left, bottom, right).
    """
    expect_map(node, x)
    stride = integers(node, "stride", 2, 1)
    padding = integers(node, "padding", 4, 0)
    size = tuple(
        (x[i - 2] + padding[i] + padding[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    )
    if min(size) < 1:
        raise bad(node, f"a map of at least the kernel's size {kernel}", f"{x[-2:]} with padding {padding}")
    return (*x[1:-2], *size)


def pad(x: Array, node: Node, value: float) -> Array:
    """Return x (N, C, ..., H, W) with the node's padding."""
    top, left, bottom, right = node.attributes["padding"]
    widths = (*[(0, 0)] * (x.ndim - 2), (top, bottom), (left, right))
    return np.pad(x, widths, constant_values=value)


def windows(x: Array, kernel: tuple[int, int], stride: Any, dilation: Any = (1, 1)) -> list[Array]:
    """Return what each tap (kh, kw) reads of the padded map x (N, C, ..., H, W), (N, C, ..., H', W')."""
    size = [(x.shape[i - 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    taps = []
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            top, left = kh * dilation[0], kw * dilation[1]
            rows = slice(top, top + (size[0] - 1) * stride[0] + 1, stride[0])
            taps.append(x[..., rows, left : left + (size[1] - 1) * stride[1] + 1 : stride[1]])
    return taps


def onnx_window(b: Onnx, node: Node, x: str, kernel: Sequence[int]) -> dict[str, Any]:
    """Return a window that slides over x as ONNX has it: over (C, M, H, W), it is one map deep."""
    padding, maps = node.attributes["padding"], len(b.shape(x)) - 3
    return {
        "kernel_shape": [*[1] * maps, *kernel],
        "strides": [*[1] * maps, *node.attributes["stride"]],
        "pads": [*[0] * maps, *padding[:2], *[0] * maps, *padding[2:]],
    }


def onnx_padded(
    b: Onnx, node: Node, x: str, window: Mapping[str, Any], value: float
) -> tuple[str, dict[str, Any]]:
    """Return x with the pads of a window of `onnx_window`, and the window without them."""
    pads = window["pads"]
    half = len(pads) // 2
    widths = b.constant(np.array([0, 0, *pads[:half], 0, 0, *pads[half:]]), f"{node.name}:pads")
    return b.emit("Pad", [x, widths, b.number(value)]), {**window, "pads": [0] * len(pads)}


def fma(a: Array, b: Array, c: Array) -> Float:
    """Return a * b + c rounded once to float32, for float32 a, b and c.

    The product is exact in float64, and so is the error of the sum. Rounding twice, to float64 and then to
    float32, can differ from rounding once. It does where the float64 sum looks half-way between two float32,
    or lies below the normal ones. There the sum is first rounded to odd.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    total = np.asarray(product + c)
    half_way = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    doubtful = (half_way | (np.abs(total) < np.finfo(np.float32).tiny)) & (total != 0)
    if doubtful.any():
        product, addend = (np.broadcast_to(v, total.shape)[doubtful] for v in (product, c))
        total[doubtful] = _round_to_odd(product, addend.astype(np.float64), total[doubtful])
    return total.astype(np.float32)


def _round_to_odd(a: Array, b: Array, total: Array) -> Array:
    """Return a + b, where inexact, as that neighbour whose last bit is 1; `total` is the rounded sum."""
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(even & (error != 0), neighbour, total)


def cut(x: Float, lower: float, upper: float) -> Float:
    """Return x between the bounds, NaN as the lower one."""
    x = np.where(x > np.float32(lower), x, np.float32(lower))
    return np.where(x < np.float32(upper), x, np.float32(upper))


def exponential(x: Float) -> Float:
    """Return exp(x), x cut to -87 ... 88, within two units in the last place.

    x = n ln 2 + r; a polynomial of degree 5 gives (exp(r) - 1 - r) / r^2 (coefficients: Cephes, expf).
    """
    magic = _f32(1.5 * 2**23)  # adding it rounds to an integer
    x = cut(x, -87, 88)
    n = fma(x, _f32(1.44269504), magic) - magic
    r = fma(n, _f32(2.12194440e-4), fma(n, _f32(-0.693359375), x))
    p = _f32(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, _f32(c))
    exponential: Float = np.ldexp(fma(p, r * r, r) + _f32(1), n.astype(np.int32))
    return exponential


def logarithm(x: Float) -> Float:
    """Return log(x) of positive x, within two units in the last place.

    x = 2^n (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1; a polynomial gives what is above f - f^2 / 2
    (coefficients: Cephes, logf). What is not a normal positive number is taken as the smallest one.
    """
    x = np.where(x > np.finfo(np.float32).tiny, x, np.finfo(np.float32).tiny)
    mantissa, exponent = np.frexp(x)
    small = mantissa < _f32(0.707106781)
    f = np.where(small, mantissa + mantissa, mantissa) - _f32(1)
    n = (exponent - small).astype(np.float32)
    p = _f32(7.0376836292e-2)
    for c in (
        -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    ):  # fmt: skip
        p = fma(p, f, _f32(c))
    square = f * f
    above = fma(n, _f32(-2.12194440e-4), p * f * square)
    return fma(n, _f32(0.693359375), f + fma(square, _f32(-0.5), above))


def gelu(x: Float) -> Float:
    """Return x Phi(x), within 2e-7 abs(x); Phi is that of the normal distribution.

    For abs(x) a polynomial in 1 / (1 + 0.3275911 abs(x) / sqrt(2)) times exp(-x^2 / 2) gives twice what is
    beyond it (Abramowitz and Stegun, 7.1.26).
    """
    t = _f32(1) / fma(np.abs(x), _f32(0.231641888), _f32(1))
    p = _f32(0.5307027145)
    for c in (-0.7265760135, 0.7107068705, -0.142248368, 0.127414796):
        p = fma(p, t, _f32(c))
    with np.errstate(over="ignore"):  # far out nothing is beyond
        beyond = p * t * exponential(x * x * _f32(-0.5))
    return np.where(x > 0, fma(-x, beyond, x), x * beyond)


def sum_of_channels(x: Float) -> Float:
    """Return the sums (N, 1, ...) of x (N, C, ...): 16 side by side, in turns, then added in halves."""
    sums = np.zeros((len(x), 16, *x.shape[2:]), np.float32)
    for first in range(0, x.shape[1], 16):
        part = x[:, first : first + 16]
        sums[:, : part.shape[1]] += part
    for half in (8, 4, 2, 1):
        sums = sums[:, :half] + sums[:, half : 2 * half]
    return sums


def _f32(value: float) -> Float:
    return np.asarray(value, np.float32)
