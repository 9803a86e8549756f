"""An operation: what it takes, what it gives, how it is computed, what it costs and what it is elsewhere.

Shapes are those of one sample, channels first as in torch: (C, H, W) for a feature map, (F,) for a vector.
Every value has a batch dimension before them, of any size.
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
from bitfactor.format.program import Buffer, Instruction, Window

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

    def window(self, node: Node, kernel: Sequence[int]) -> Window:
        """Return the window that slides over the first source."""
        stride, padding = node.attributes["stride"], node.attributes["padding"]
        dilation = node.attributes.get("dilation", (1, 1))
        (in_h, in_w), (out_h, out_w) = self.shapes[0][-2:], self.shape[-2:]
        size = kernel[0], kernel[1]
        return Window((in_h, in_w), (out_h, out_w), size, stride, padding[:2], dilation)

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
    """All that there is to know of an operation, but for its kernels and how torch's become it.

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


def bad(node: Node, expected: str, found: str) -> InputError:
    """Return the error of a node that does not fit."""
    return InputError(
        f"node {node.name!r} ({node.op})", expected=expected, found=found, fix="export the model again"
    )


def expect_tensor(node: Node, role: str, *shapes: Shape) -> None:
    """Raise InputError unless the tensor has one of the shapes."""
    if node.tensors[role].shape not in shapes:
        raise bad(node, f"{role} shaped {' or '.join(map(str, shapes))}", str(node.tensors[role].shape))


def integers(node: Node, name: str, count: int, least: int) -> tuple[int, ...]:
    """Return an attribute of `count` integers, each `least` or more."""
    value = node.attributes[name]
    if (
        not isinstance(value, tuple)
        or len(value) != count
        or not all(isinstance(v, int) and v >= least for v in value)
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
