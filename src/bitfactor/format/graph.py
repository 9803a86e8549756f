"""The network as a list of operations, each value assigned once.

Shapes are those of one sample, channels first as in torch: (C, H, W) for a feature map, (F,) for a vector.
Every value has a batch dimension before them, of any size. A value has one of three dtypes:

- `float32`: real numbers;
- `int32`: the exact sums of a binary convolution or linear layer;
- `bit`: signs, see `bitfactor.format.bits`.

`bitfactor.format.operations` is the vocabulary. What each costs is here too.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from math import prod
from operator import add
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked, expect, expect_one_of, expect_text, expect_that
from bitfactor.common.errors import InputError, near_matches
from bitfactor.format.bits import is_packed, stored_bytes
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.operations.operation import Shape, bad, expect_tensor

DType = Literal["float32", "int32", "bit"]
MOST_NODES = 1 << 13  # the plan compares them in pairs
MOST_AXES = 6  # of a sample's value, as the core has them
MOST_ELEMENTS = 1 << 31  # of a sample's value: places in memory are 32 bits wide

ARRAYS: dict[str, type[np.number[Any]]] = {"float32": np.float32, "int32": np.int32, "bit": np.int8}
"""What the values of each dtype are in numpy."""


@dataclass(frozen=True)
class Value:
    """A value's name, its shape without the batch dimension, and its dtype: float32, int32 or bit.

    Raises
    ------
    InputError
        If one of them is not that, there is no length, or one is below 1.
    """

    name: str
    shape: Shape
    dtype: str

    def __post_init__(self) -> None:
        expect("Value(name)", self.name, str)
        expect("Value(shape)", self.shape, Shape)
        expect_one_of("Value(dtype)", self.dtype, get_args(DType))
        expect_that(
            self.shape != () and min(self.shape) >= 1,
            f"shape of value {self.name!r}",
            expected="one or more lengths, each 1 or more, without the batch dimension",
            found=self.shape,
        )
        expect_text("name of a value", self.name)
        if not self.name or len(self.shape) > MOST_AXES:
            raise InputError(
                f"value {self.name!r}",
                expected=f"a name, and {MOST_AXES} axes at most beside the batch's",
                found=str(self.shape),
                fix="give it a name, or reshape it",
            )
        if prod(self.shape) > MOST_ELEMENTS:
            raise InputError(
                f"shape of value {self.name!r}",
                expected=f"at most {MOST_ELEMENTS} elements",
                found=str(self.shape),
                fix="give smaller inputs",
            )


@dataclass(frozen=True)
class Graph:
    """A network: its input, nodes in an order in which they can run, the names of the outputs.

    `others` are further inputs, behind the first.

    Raises
    ------
    InputError
        On construction, if an operation is unknown, an input is missing, or a shape, dtype, tensor or
        attribute is not what the operation takes. The message names the node.
    """

    input: Value
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    others: tuple[Value, ...] = ()
    values: Mapping[str, Value] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        expect("Graph(input)", self.input, Value)
        expect("Graph(nodes)", self.nodes, tuple[Node, ...])
        expect("Graph(outputs)", self.outputs, tuple[str, ...])
        expect("Graph(others)", self.others, tuple[Value, ...])
        if (count := len(self.nodes)) > MOST_NODES:
            expected = f"at most {MOST_NODES} nodes"
            raise InputError("graph", expected=expected, found=str(count), fix="split the network")
        values: dict[str, Value] = {}
        for value in self.inputs:
            fix = "export the model again"
            if value.dtype != "float32":
                raise InputError("graph input", expected="dtype float32", found=value.dtype, fix=fix)
            if value.name in values:
                raise InputError("graph input", expected="names that differ", found=value.name, fix=fix)
            values[value.name] = value
        for node in self.nodes:
            if node.name in values:
                raise bad(node, "a name that is used once", f"a second value named {node.name!r}")
            values[node.name] = infer(node, values)
        expect_that(self.outputs != (), "graph outputs", expected="one name or more", found="none")
        for name in self.outputs:
            if name not in values:
                raise InputError(
                    "graph outputs",
                    expected="names of values",
                    found=repr(name),
                    fix=near_matches(name, values),
                )
        object.__setattr__(self, "values", values)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All inputs, in the order in which a call gives them."""
        return (self.input, *self.others)


def infer(node: Node, values: Mapping[str, Value]) -> Value:
    """Return the value that `node` gives when it runs on `values`, or raise `InputError` where it cannot."""
    op = OPERATIONS.get(node.op)
    if op is None:
        raise InputError(
            f"node {node.name!r}",
            expected="an operation of this version",
            found=repr(node.op),
            fix="update bitfactor, or export again with this version",
        )
    dtypes_of_inputs = op.inputs + op.inputs[-1:] * (len(node.inputs) - len(op.inputs) if op.variadic else 0)
    if len(node.inputs) != len(dtypes_of_inputs):
        raise bad(node, f"{len(op.inputs)} inputs", str(len(node.inputs)))
    for name, dtypes in zip(node.inputs, dtypes_of_inputs, strict=True):
        if name not in values:
            raise bad(node, "inputs computed before it", repr(name))
        if values[name].dtype not in dtypes:
            raise bad(node, f"input {name!r} of dtype {' or '.join(dtypes)}", values[name].dtype)
    if set(node.attributes) != set(op.attributes):
        raise bad(node, f"attributes {sorted(op.attributes)}", str(sorted(node.attributes)))
    tensors = op.tensors_of(node)
    if set(node.tensors) != set(tensors):
        raise bad(node, f"tensors {sorted(tensors)}", str(sorted(node.tensors)))
    for role, types in tensors.items():
        if node.tensors[role].dtype not in types:
            names = " or ".join(str(np.dtype(one)) for one in types)
            raise bad(node, f"{role} of type {names}", str(node.tensors[role].dtype))
    if "step" in tensors:
        expect_tensor(node, "step", node.tensors["weight"].shape[:1])
    shape = op.infer(node, *(values[name].shape for name in node.inputs))
    return Value(node.name, shape, op.dtype)


def needed(graph: Graph) -> Graph:
    """Return the graph without the nodes that no output needs."""
    read = {*graph.outputs}
    for node in reversed(graph.nodes):
        read |= {*node.inputs} if node.name in read else set()
    return replace(graph, nodes=tuple(node for node in graph.nodes if node.name in read))


def run(graph: Graph, *xs: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """Return the outputs of `graph` by the reference, operation by operation, in numpy.

    Each of xs is (N, *shape of the input); an output float32, int32 or, for signs, int8.
    """
    if xs and not len(xs[0]):  # numpy cannot tell what -1 stands for
        return tuple(y[:0] for y in run(graph, *(np.zeros((1, *x.shape[1:]), x.dtype) for x in xs)))
    values: dict[str, NDArray[Any]] = {value.name: x for value, x in zip(graph.inputs, xs, strict=True)}
    for node in graph.nodes:
        inputs = (values[name] for name in node.inputs)
        values[node.name] = OPERATIONS[node.op].reference(node, *inputs)
    outputs = (values[name] for name in graph.outputs)
    samples = len(xs[0]) if xs else 1
    return tuple(y if len(y) == samples else np.repeat(y, samples, 0) for y in outputs)  # of a constant alone


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates of one sample, of 1 bit by 1 bit or of real numbers; bytes of the tensors.

    `binary_bytes` are packed signs, `real_bytes` everything else: real weights, biases, scales, thresholds.
    A layer of signs whose inputs are real has binary bytes, and real multiply-accumulates.
    """

    binary_macs: int = 0
    real_macs: int = 0
    binary_bytes: int = 0
    real_bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(add, astuple(self), astuple(other)))

    @property
    def binary_fraction(self) -> float:
        """Share of the multiply-accumulates that are of 1 bit; 0 where there are none."""
        return self.binary_macs / max(self.binary_macs + self.real_macs, 1)


@checked
def cost(node: Node, graph: Graph) -> Cost:
    """Return what `node` costs in `graph`. A tap on the padding counts as any other."""
    x = graph.values[node.inputs[0]].shape if node.inputs else ()
    y = graph.values[node.name].shape
    macs = OPERATIONS[node.op].macs(node, x, y)
    binary = any(tensor.dtype == np.uint64 for tensor in node.tensors.values())
    sizes = {role: stored_bytes(role, tensor) for role, tensor in node.tensors.items()}
    binary_bytes = sum(size for role, size in sizes.items() if is_packed(role, node.tensors[role]))
    return Cost(
        binary_macs=macs if binary else 0,
        real_macs=0 if binary else macs,
        binary_bytes=binary_bytes,
        real_bytes=sum(sizes.values()) - binary_bytes,
    )


@checked
def total(graph: Graph) -> Cost:
    """Return what all nodes cost together."""
    return sum((cost(node, graph) for node in graph.nodes), Cost())
