"""The network as a list of operations, each value assigned once.

Shapes are those of one sample, channels first as in torch: (C, H, W) for a feature map, (F,) for a vector.
Every value has a batch dimension before them, of any size. A value is one of three kinds:

- `float32`: real numbers;
- `int32`: the exact sums of a binary convolution or linear layer;
- `bit`: signs, see `bitfactor.format.bits`.

`OPS` is the vocabulary. An entry states what an operation takes and derives what it gives; the
mathematics of each is in `bitfactor.runtime.reference`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import expect, expect_one_of
from bitfactor.errors import InputError, near_matches
from bitfactor.format.bits import WORD_BITS, words_for

Shape = tuple[int, ...]
DTypes = tuple[type[np.generic], ...]
Kind = Literal["float32", "int32", "bit"]


@dataclass(frozen=True)
class Value:
    """A value's name, its shape without the batch dimension, and its kind: float32, int32 or bit.

    Raises
    ------
    InputError
        If one of them is not that, or a length is below 1.
    """

    name: str
    shape: Shape
    kind: str

    def __post_init__(self) -> None:
        expect("Value(name)", self.name, str)
        expect("Value(shape)", self.shape, Shape)
        expect_one_of("Value(kind)", self.kind, get_args(Kind))
        if any(length < 1 for length in self.shape):
            raise InputError(
                f"shape of value {self.name!r}",
                expected="lengths of 1 or more, without the batch dimension",
                found=str(self.shape),
                fix="change it",
            )


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
class Graph:
    """A network: one input, nodes in an order in which they can run, the names of the outputs.

    Raises
    ------
    InputError
        On construction, if an operation is unknown, an input is missing, or a shape, kind, tensor or
        attribute is not what the operation takes. The message names the node.
    """

    input: Value
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        expect("Graph(input)", self.input, Value)
        expect("Graph(nodes)", self.nodes, tuple[Node, ...])
        expect("Graph(outputs)", self.outputs, tuple[str, ...])
        if self.input.kind != "float32":
            raise InputError(
                "graph input", expected="kind float32", found=self.input.kind, fix="export the model again"
            )
        values = {self.input.name: self.input}
        for node in self.nodes:
            if node.name in values:
                raise _bad(node, "a name that is used once", f"a second value named {node.name!r}")
            values[node.name] = infer(node, values)
        for name in self.outputs:
            if name not in values:
                raise InputError(
                    "graph outputs",
                    expected="names of values",
                    found=repr(name),
                    fix=near_matches(name, values),
                )
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Op:
    """What an operation takes and gives.

    `inputs` is a tuple of the kinds that each input may have; with `variadic`, the last may come any number
    of times. `tensors` (with the types that each may have) and `attributes` name what a node must carry; a
    weight of int8 comes with its `step`. `infer(node, *inputs)` returns the shape of the result, of kind
    `kind`, and raises `InputError` where things do not fit.
    """

    inputs: tuple[tuple[str, ...], ...]
    kind: str
    infer: Callable[..., Shape]
    tensors: Mapping[str, DTypes] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    variadic: bool = False

    def tensors_of(self, node: Node) -> dict[str, DTypes]:
        """Return the tensors that `node` must carry, with their types."""
        weight = node.tensors.get("weight")
        quantised = weight is not None and weight.dtype == np.int8
        return {**self.tensors, "step": (np.float32,)} if quantised else {**self.tensors}


def _bad(node: Node, expected: str, found: str) -> InputError:
    return InputError(
        f"node {node.name!r} ({node.op})", expected=expected, found=found, fix="export the model again"
    )


def infer(node: Node, values: Mapping[str, Value]) -> Value:
    """Return the value that `node` gives when it runs on `values`, or raise `InputError` where it cannot."""
    op = OPS.get(node.op)
    if op is None:
        raise InputError(
            f"node {node.name!r}",
            expected="an operation of this version",
            found=repr(node.op),
            fix="update bitfactor, or export again with this version",
        )
    kinds_of_inputs = op.inputs + op.inputs[-1:] * (len(node.inputs) - len(op.inputs) if op.variadic else 0)
    if len(node.inputs) != len(kinds_of_inputs):
        raise _bad(node, f"{len(op.inputs)} inputs", str(len(node.inputs)))
    for name, kinds in zip(node.inputs, kinds_of_inputs, strict=True):
        if name not in values:
            raise _bad(node, "inputs computed before it", repr(name))
        if values[name].kind not in kinds:
            raise _bad(node, f"input {name!r} of kind {' or '.join(kinds)}", values[name].kind)
    if set(node.attributes) != set(op.attributes):
        raise _bad(node, f"attributes {sorted(op.attributes)}", str(sorted(node.attributes)))
    tensors = op.tensors_of(node)
    if set(node.tensors) != set(tensors):
        raise _bad(node, f"tensors {sorted(tensors)}", str(sorted(node.tensors)))
    for role, dtypes in tensors.items():
        if node.tensors[role].dtype not in dtypes:
            names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
            raise _bad(node, f"{role} of type {names}", str(node.tensors[role].dtype))
    if "step" in tensors:
        _expect_tensor(node, "step", node.tensors["weight"].shape[:1])
    shape = op.infer(node, *(values[name].shape for name in node.inputs))
    return Value(node.name, shape, op.kind)


def _expect_tensor(node: Node, role: str, *shapes: Shape) -> None:
    if node.tensors[role].shape not in shapes:
        raise _bad(node, f"{role} shaped {' or '.join(map(str, shapes))}", str(node.tensors[role].shape))


def _numbers(node: Node, name: str, count: int, least: int) -> tuple[int, ...]:
    value = node.attributes[name]
    if (
        not isinstance(value, tuple)
        or len(value) != count
        or not all(isinstance(v, int) and v >= least for v in value)
    ):
        raise _bad(node, f"{name} as {count} integers of {least} or more", repr(value))
    return value


def _window(node: Node, x: Shape, kernel: tuple[int, int], dilation: tuple[int, ...]) -> Shape:
    """(C, H, W) -> (H', W') of a sliding window; padding is (top, left, bottom, right)."""
    if len(x) != 3:
        raise _bad(node, "an input shaped (C, H, W)", str(x))
    stride = _numbers(node, "stride", 2, 1)
    padding = _numbers(node, "padding", 4, 0)
    size = tuple(
        (x[1 + i] + padding[i] + padding[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    )
    if min(size) < 1:
        raise _bad(node, f"a map of at least the kernel's size {kernel}", f"{x[1:]} with padding {padding}")
    return size


def _expect_empty_tail(node: Node, channels: int) -> None:
    used = channels % WORD_BITS
    if used and (node.tensors["weight"][..., -1] >> np.uint64(used)).any():
        raise _bad(node, f"weight words with bits {used} to {WORD_BITS - 1} of the last one 0", "others")


def _conv(node: Node, x: Shape, channels_to_depth: Callable[[int], int]) -> Shape:
    weight = node.tensors["weight"].shape
    groups = node.attributes["groups"]
    if not isinstance(groups, int) or groups < 1 or x[0] % groups:
        raise _bad(node, f"groups that divide {x[0]} channels", repr(groups))
    depth = channels_to_depth(x[0] // groups)
    if len(weight) != 4 or weight[3] != depth or weight[0] % groups:
        raise _bad(node, f"weight shaped (O, kh, kw, {depth}), O divisible by groups {groups}", str(weight))
    return (weight[0], *_window(node, x, (weight[1], weight[2]), _numbers(node, "dilation", 2, 1)))


def _conv2d(node: Node, x: Shape) -> Shape:
    shape = _conv(node, x, lambda channels: channels)
    _expect_tensor(node, "bias", shape[:1])
    return shape


def _binary_conv2d(node: Node, x: Shape) -> Shape:
    if node.attributes["pad_value"] not in (-1, 0, 1):
        raise _bad(node, "pad_value -1, 0 or 1", repr(node.attributes["pad_value"]))
    shape = _conv(node, x, words_for)
    _expect_empty_tail(node, x[0] // node.attributes["groups"])
    return shape


def _linear(node: Node, x: Shape) -> Shape:
    weight = node.tensors["weight"].shape
    if len(x) != 1 or len(weight) != 2 or weight[1] != x[0]:
        raise _bad(node, "an input shaped (F,) and a weight shaped (O, F)", f"{x} and {weight}")
    _expect_tensor(node, "bias", weight[:1])
    return weight[:1]


def _binary_linear(node: Node, x: Shape) -> Shape:
    weight = node.tensors["weight"].shape
    if len(x) != 1 or len(weight) != 2 or weight[1] != words_for(x[0]):
        raise _bad(node, "an input shaped (F,) and a weight shaped (O, ceil(F / 64))", f"{x} and {weight}")
    _expect_empty_tail(node, x[0])
    return weight[:1]


def _threshold(node: Node, x: Shape) -> Shape:
    _expect_tensor(node, "threshold", x[:1])
    _expect_tensor(node, "direction", x[:1])
    if not np.isin(node.tensors["direction"], (-1, 1)).all():
        raise _bad(node, "direction of -1 and +1", str(np.unique(node.tensors["direction"])[:8].tolist()))
    if np.isnan(node.tensors["threshold"]).any():
        raise _bad(node, "thresholds that are numbers", "NaN")
    return x


def _scale(node: Node, x: Shape) -> Shape:
    _expect_tensor(node, "alpha", x[:1], x)
    return x


def _affine(node: Node, x: Shape) -> Shape:
    _expect_tensor(node, "scale", x[:1])
    _expect_tensor(node, "shift", x[:1])
    return x


def _prelu(node: Node, x: Shape) -> Shape:
    _expect_tensor(node, "slope", x[:1])
    return x


def _add(node: Node, x: Shape, y: Shape) -> Shape:
    if x != y:
        raise _bad(node, "two inputs of one shape", f"{x} and {y}")
    return x


def _multiply(node: Node, x: Shape, y: Shape) -> Shape:
    if y not in (x, (*x[:1], *[1] * (len(x) - 1))):
        raise _bad(node, "a second input of the first one's shape, or one number per channel", f"{x} and {y}")
    return x


def _clip(node: Node, x: Shape) -> Shape:
    lower, upper = node.attributes["lower"], node.attributes["upper"]
    if not all(isinstance(bound, float) and np.isfinite(bound) for bound in (lower, upper)) or lower > upper:
        raise _bad(node, "lower and upper as numbers, in this order", f"{lower!r} and {upper!r}")
    return x


def _concat(node: Node, *shapes: Shape) -> Shape:
    if any(shape[1:] != shapes[0][1:] for shape in shapes):
        raise _bad(node, "inputs that differ in their channels alone", str(list(shapes)))
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _reshape(node: Node, x: Shape) -> Shape:
    """One length may be -1: what is left."""
    shape, numbers = node.attributes["shape"], int(np.prod(x))
    if not isinstance(shape, tuple) or not shape or not all(isinstance(n, int) for n in shape):
        raise _bad(node, "a shape as integers", repr(shape))
    known = int(np.prod([n for n in shape if n != -1]))
    whole = tuple(numbers // max(known, 1) if n == -1 else n for n in shape)
    if shape.count(-1) > 1 or min(whole) < 1 or np.prod(whole) != numbers:
        raise _bad(node, f"a shape of {numbers} numbers", repr(shape))
    return whole


def _permute(node: Node, x: Shape) -> Shape:
    order = _numbers(node, "order", len(x), 0)
    if sorted(order) != list(range(len(x))):
        raise _bad(node, f"each of the axes 0 to {len(x) - 1} once", str(order))
    return tuple(x[axis] for axis in order)


def _slice(node: Node, x: Shape) -> Shape:
    axis, start, stop, step = _numbers(node, "range", 4, 0)
    if axis >= len(x) or step < 1 or not start < stop <= x[axis]:
        raise _bad(node, f"(axis, start, stop, step) inside {x}", str(node.attributes["range"]))
    return (*x[:axis], len(range(start, stop, step)), *x[axis + 1 :])


def _pool2d(node: Node, x: Shape) -> Shape:
    kernel = _numbers(node, "kernel", 2, 1)
    padding = _numbers(node, "padding", 4, 0)
    if any(padding[i] >= kernel[i % 2] for i in range(4)):
        raise _bad(node, f"padding smaller than the kernel {kernel}", str(padding))
    return (x[0], *_window(node, x, (kernel[0], kernel[1]), (1, 1)))


def _avg_pool2d(node: Node, x: Shape) -> Shape:
    if node.attributes["count_include_pad"] not in (0, 1):
        raise _bad(node, "count_include_pad 0 or 1", repr(node.attributes["count_include_pad"]))
    return _pool2d(node, x)


def _upsample_nearest(node: Node, x: Shape) -> Shape:
    height, width = _numbers(node, "scale", 2, 1)
    if len(x) != 3:
        raise _bad(node, "an input shaped (C, H, W)", str(x))
    return (x[0], x[1] * height, x[2] * width)


def _global_avg_pool(node: Node, x: Shape) -> Shape:
    if len(x) != 3:
        raise _bad(node, "an input shaped (C, H, W)", str(x))
    return (x[0], 1, 1)


def _flatten(node: Node, x: Shape) -> Shape:
    return (int(np.prod(x)),)


def _same(node: Node, x: Shape) -> Shape:
    return x


_FLOAT, _BIT, _NUMBER = ("float32",), ("bit",), ("float32", "int32")
_SLIDING = ("stride", "padding", "dilation", "groups")
_FLOATS: DTypes = (np.float32,)
_LAYER: dict[str, DTypes] = {"weight": (np.float32, np.float16, np.int8), "bias": _FLOATS}
_SIGNS: dict[str, DTypes] = {"weight": (np.uint64,)}
_THRESHOLD: dict[str, DTypes] = {"threshold": _FLOATS, "direction": (np.int8,)}

OPS: dict[str, Op] = {
    "conv2d": Op((_FLOAT,), "float32", _conv2d, _LAYER, _SLIDING),
    "binary_conv2d": Op((_BIT,), "int32", _binary_conv2d, _SIGNS, (*_SLIDING, "pad_value")),
    "linear": Op((_FLOAT,), "float32", _linear, _LAYER),
    "binary_linear": Op((_BIT,), "int32", _binary_linear, _SIGNS),
    "threshold": Op((_NUMBER,), "bit", _threshold, _THRESHOLD),
    "scale": Op((_NUMBER,), "float32", _scale, {"alpha": _FLOATS}),
    "affine": Op((_FLOAT,), "float32", _affine, {"scale": _FLOATS, "shift": _FLOATS}),
    "relu": Op((_FLOAT,), "float32", _same),
    "prelu": Op((_FLOAT,), "float32", _prelu, {"slope": _FLOATS}),
    "clip": Op((_FLOAT,), "float32", _clip, {}, ("lower", "upper")),
    "sigmoid": Op((_FLOAT,), "float32", _same),
    "softmax": Op((_FLOAT,), "float32", _same),
    "add": Op((_FLOAT, _FLOAT), "float32", _add),
    "multiply": Op((_FLOAT, _FLOAT), "float32", _multiply),
    "concat": Op((_FLOAT,), "float32", _concat, variadic=True),
    "max_pool2d": Op((_FLOAT,), "float32", _pool2d, {}, ("kernel", "stride", "padding")),
    "avg_pool2d": Op(
        (_FLOAT,), "float32", _avg_pool2d, {}, ("kernel", "stride", "padding", "count_include_pad")
    ),
    "upsample_nearest": Op((_FLOAT,), "float32", _upsample_nearest, {}, ("scale",)),
    "global_avg_pool": Op((_FLOAT,), "float32", _global_avg_pool),
    "flatten": Op((_FLOAT,), "float32", _flatten),
    "reshape": Op((_FLOAT,), "float32", _reshape, {}, ("shape",)),
    "permute": Op((_FLOAT,), "float32", _permute, {}, ("order",)),
    "slice": Op((_FLOAT,), "float32", _slice, {}, ("range",)),
}


def real_weight(node: Node) -> NDArray[np.float32]:
    """Return the weight of a conv2d or linear node as it is computed with, whatever it is stored as.

    float16 is widened; int8 is multiplied by the `step` of its output channel.
    """
    weight = node.tensors["weight"].astype(np.float32)
    if "step" in node.tensors:
        weight *= node.tensors["step"].reshape(-1, *[1] * (weight.ndim - 1))
    return weight
