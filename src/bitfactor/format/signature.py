"""How a network is called: the types of its inputs, in what its outputs come, and which sizes are free.

A network that is convolutional throughout, or works on a sequence of any length, is the same list of
operations at every size. Integers of some of them differ, such as the shape that a map is flattened to. Each
is a function of the lengths of a value before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import as_tuples, check_fields, expect_that
from bitfactor.common.errors import InputError
from bitfactor.format.graph import MOST_ELEMENTS, Graph, Value, infer
from bitfactor.format.operations import Node
from bitfactor.format.operations.operation import Shape, bad

Structure = Any  # the number of an output, None, or a tuple, list or dict of such

_TYPES = ("float32", "int64", "bool")
_MORE = ("returned", "scalar_inputs", "scalar_outputs")  # in a file that has them


@dataclass(frozen=True)
class Signature:
    """What of a call a graph does not say, whose values are float32 all.

    `types` are those of the inputs as torch has them: float32, int64 (any integers) or bool. `outputs` is
    what the model returns, with the number of an output of the graph in the place of each. `returned` are
    their types, where not all are float32. Inputs and outputs in `scalar_inputs` and `scalar_outputs`, by
    their number, are one value a sample, (N,), which a graph has as (N, 1).

    Example
    -------
    >>> Signature(("int64",), {"logits": 0, "hidden": (1, 2)}).arrange([a, b, c])["hidden"]
    (b, c)
    """

    types: tuple[str, ...]
    outputs: Structure = 0
    returned: tuple[str, ...] = ()
    scalar_inputs: tuple[int, ...] = ()
    scalar_outputs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "signature: ")
        for name in (*self.types, *self.returned):
            if name not in _TYPES:
                raise InputError(
                    "signature: types", expected=f"of {', '.join(_TYPES)}", found=name, fix="export again"
                )

    def arrange(self, outputs: Sequence[NDArray[Any]]) -> Any:
        """Return the outputs as the model returns them."""
        given = list(outputs)
        for i in self.scalar_outputs:
            given[i] = given[i][:, 0]
        for i, name in enumerate(self.returned):
            if name != "float32":
                given[i] = given[i].astype(np.dtype(name))
        return _arranged(self.outputs, given)

    def expect_of(self, graph: Graph) -> None:
        """Raise InputError unless it is one of calls of this graph."""
        inputs, outputs = graph.inputs, [graph.values[name] for name in graph.outputs]
        leaves = [leaf for leaf in _leaves(self.outputs) if leaf is not None]
        known = (
            len(self.types) == len(inputs)
            and len(self.returned) in (0, len(outputs))
            and all(type(leaf) is int and 0 <= leaf < len(outputs) for leaf in leaves)
            and all(_is_scalar(inputs, i) for i in self.scalar_inputs)
            and all(_is_scalar(outputs, i) for i in self.scalar_outputs)
        )
        if not known:
            raise _damaged("signature", f"one of {len(inputs)} inputs and {len(outputs)} outputs", self)

    def described(self) -> dict[str, Any]:
        """Return it as plain types that JSON holds."""
        more = {name: list(getattr(self, name)) for name in _MORE if getattr(self, name)}
        return {"types": list(self.types), "outputs": _described(self.outputs), **more}

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> "Signature":
        """Return what `described` told of."""
        more = (tuple(values.get(name, ())) for name in _MORE)
        return cls(tuple(values["types"]), _restored(values["outputs"]), *more)


def plain(inputs: int, outputs: int) -> Signature:
    """Return that of a file that states none: float32, one output by itself or several in a tuple."""
    return Signature(("float32",) * inputs, 0 if outputs == 1 else tuple(range(outputs)))


def _leaves(structure: Structure) -> Iterator[Any]:
    parts = structure.values() if isinstance(structure, dict) else structure
    if isinstance(structure, dict | list | tuple):
        for part in parts:
            yield from _leaves(part)
    else:
        yield structure


def _is_scalar(values: Sequence[Value], number: int) -> bool:
    return 0 <= number < len(values) and values[number].shape == (1,)


def _damaged(what: str, expected: str, found: object) -> InputError:
    return InputError(what, expected=expected, found=str(found)[:160], fix="export the model again")


def _arranged(structure: Structure, outputs: Sequence[NDArray[Any]]) -> Any:
    if isinstance(structure, dict):
        return {name: _arranged(part, outputs) for name, part in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)(_arranged(part, outputs) for part in structure)
    return None if structure is None else outputs[structure]


def _described(structure: Structure) -> Any:
    """A list in JSON is a list, a tuple an object of that name, a dict one of pairs, whose order it keeps."""
    if isinstance(structure, dict):
        return {"dict": [[name, _described(part)] for name, part in structure.items()]}
    if isinstance(structure, list | tuple):
        parts = [_described(part) for part in structure]
        return parts if isinstance(structure, list) else {"tuple": parts}
    return structure


def _restored(value: Any) -> Structure:
    if isinstance(value, list):
        return [_restored(part) for part in value]
    if isinstance(value, dict) and "dict" in value:
        return {name: _restored(part) for name, part in value["dict"]}
    if isinstance(value, dict):
        return tuple(_restored(part) for part in value["tuple"])
    return value


def as_float(x: NDArray[Any], type_name: str, where: str) -> NDArray[np.float32]:
    """Return an input as the graph takes it."""
    if type_name == "float32" or x.dtype == bool:
        allowed = np.can_cast(x.dtype, np.float32)
    else:
        allowed = type_name == "int64" and x.dtype.kind in "iu"
    if not allowed:
        names = {"float32": "float32, or a type it holds exactly", "int64": "integers", "bool": "bool"}
        fix = f"use numpy.asarray({where}, numpy.{type_name.replace('bool', 'bool_')})"
        raise InputError(where, expected=names[type_name], found=str(x.dtype), fix=fix)
    if x.dtype.kind in "iu" and x.size and max(-int(x.min()), int(x.max())) > _LARGEST:
        expected, found = f"integers from -{_LARGEST} to {_LARGEST}", f"{x.min()} to {x.max()}"
        raise InputError(where, expected=expected, found=found, fix="number from 0")
    return np.ascontiguousarray(x, np.float32)


_LARGEST = 1 << 24  # beyond, float32 does not hold every integer


Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Length:
    """The integer `factor` * lengths // `divisor` + `offset`, of lengths of axes of values, multiplied."""

    axes: tuple[tuple[str, int], ...]
    factor: int = 1
    divisor: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        check_fields(self, "free sizes: ")
        if self.divisor < 1:
            raise _damaged("free sizes", "a divisor of 1 or more", self.divisor)

    def at(self, shapes: Shapes) -> int:
        """Return the integer, for the shapes that values have."""
        return (
            self.factor * prod(shapes[name][axis] for name, axis in self.axes) // self.divisor + self.offset
        )


Entries = tuple[Length | None, ...]


@dataclass(frozen=True)
class FreeSizes:
    """The free lengths of a file: `axes` are (input, axis of a sample, step), `lengths` integers of nodes.

    A free length may be that of the graph plus or minus a multiple of the step. `lengths` has, by node and
    attribute, a Length or None for each integer. Of a tensor, such as an embedding of positions, it has one
    for each axis: so much of the whole one in `tensors` is used.
    """

    axes: tuple[tuple[int, int, int], ...]
    lengths: Mapping[str, Mapping[str, Entries]] = field(default_factory=dict)
    tensors: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self, "free sizes: ")

    def expect_of(self, graph: Graph) -> None:
        """Raise InputError unless these are sizes of this graph."""
        ranks = [len(value.shape) for value in graph.inputs]
        for i, axis, step in self.axes:
            if not (0 <= i < len(ranks) and 0 <= axis < ranks[i] and step >= 1):
                raise _damaged("free sizes", "an input, an axis of it, and a step", (i, axis, step))
        before = {value.name: value for value in graph.inputs}
        for node in graph.nodes:
            for name, entries in self.lengths.get(node.name, {}).items():
                whole = self.tensors.get(node.name, {}).get(name)
                own = node.tensors[name].shape if name in node.tensors else node.attributes.get(name, ())
                places = [place for one in entries if one is not None for place in one.axes]
                known = all(x in before and 0 <= axis < len(before[x].shape) for x, axis in places)
                held = (name in node.tensors) == (whole is not None)
                if held and whole is not None:
                    held = whole.ndim == node.tensors[name].ndim and whole.size > 0
                if not known or not held or len(_flat(own)) != len(entries):
                    where = f"free sizes of {name!r} of node {node.name!r}"
                    raise _damaged(
                        where, "lengths of values before it, one for each of its integers", entries
                    )
            before[node.name] = graph.values[node.name]
        if unknown := [*self.lengths.keys() - {node.name for node in graph.nodes}]:
            raise _damaged("free sizes", "nodes of the graph", unknown[0])

    def allows(self, number: int, own: Shape, other: Shape) -> bool:
        """Return whether an input of shape `own` in the graph may have another shape."""
        steps = {axis: step for i, axis, step in self.axes if i == number}
        if len(own) != len(other):
            return False
        pairs = enumerate(zip(own, other, strict=True))
        return all(
            n == m or (axis in steps and m > 0 and (m - n) % steps[axis] == 0) for axis, (n, m) in pairs
        )

    def shown(self, number: int, own: Shape) -> str:
        """Return the shapes that an input may have, as a message shows them: (N, 3, any, 8 + 16 k)."""
        steps = {axis: step for i, axis, step in self.axes if i == number}
        lengths = [
            str(n) if axis not in steps else "any" if steps[axis] == 1 else f"{n} + {steps[axis]} k"
            for axis, n in enumerate(own)
        ]
        return f"(N, {', '.join(lengths)})"

    def graph_for(self, graph: Graph, shapes: Sequence[Shape]) -> Graph:
        """Return the graph for inputs of other shapes, or raise InputError where it cannot run on them."""
        count = len(graph.inputs)
        expect_that(len(shapes) == count, "input shapes", expected=f"{count} of them", found=len(shapes))
        first, *others = (
            replace(value, shape=shape) for value, shape in zip(graph.inputs, shapes, strict=True)
        )
        if not self.lengths:
            return replace(graph, input=first, others=tuple(others))
        values = {value.name: value for value in (first, *others)}
        nodes = []
        for node in graph.nodes:
            if node.name in self.lengths:
                node = self._resized(node, {name: value.shape for name, value in values.items()})
            values[node.name] = infer(node, values)
            nodes.append(node)
        return Graph(first, tuple(nodes), graph.outputs, tuple(others))

    def _resized(self, node: Node, shapes: Shapes) -> Node:
        attributes, tensors = dict(node.attributes), dict(node.tensors)
        for name, entries in self.lengths[node.name].items():
            lengths = [None if length is None else length.at(shapes) for length in entries]
            if name in tensors:
                tensors[name] = _part(node, name, self.tensors[node.name][name], lengths)
                continue
            own = _flat(attributes[name])
            new = (n if length is None else length for n, length in zip(own, lengths, strict=True))
            attributes[name] = _filled(attributes[name], iter([*new]))
        return replace(node, attributes=attributes, tensors=tensors)

    def described(self) -> dict[str, Any]:
        """Return it as plain types that JSON holds."""
        return {
            "axes": self.axes,
            "lengths": {
                node: {
                    name: [one and [one.axes, one.factor, one.divisor, one.offset] for one in lengths]
                    for name, lengths in attributes.items()
                }
                for node, attributes in self.lengths.items()
            },
        }

    @classmethod
    def restored(
        cls, values: Mapping[str, Any], tensors: Mapping[str, Mapping[str, NDArray[Any]]]
    ) -> "FreeSizes":
        """Return what `described` told of, with the tensors, which it does not have."""
        lengths = {
            node: {
                name: tuple(one and Length(*one) for one in as_tuples(entries))
                for name, entries in attributes.items()
            }
            for node, attributes in values["lengths"].items()
        }
        return cls(as_tuples(values["axes"]), lengths, tensors)


def free_sizes(graphs: Sequence[Graph], axes: Sequence[tuple[int, int, int]]) -> FreeSizes:
    """Find what the integers of the nodes are, from graphs of the same network at several sizes."""
    first = graphs[0]
    if any(len(graph.nodes) != len(first.nodes) or graph.outputs != first.outputs for graph in graphs):
        raise _differs("the operations", "others at another size")
    lengths: dict[str, dict[str, Entries]] = {}
    tensors: dict[str, dict[str, NDArray[Any]]] = {}
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        name = nodes[0].name
        _expect_alike(nodes)
        for attribute in nodes[0].attributes:
            values = [node.attributes[attribute] for node in nodes]
            entries = _entries(attribute, values, nodes[0], graphs)
            if any(entries):
                lengths.setdefault(name, {})[attribute] = entries
        for role in nodes[0].tensors:
            arrays = [node.tensors[role] for node in nodes]
            entries = _entries(role, [array.shape for array in arrays], nodes[0], graphs)
            largest = max(arrays, key=lambda array: array.size)
            _expect_parts(nodes[0], role, arrays, largest)
            if any(entries):
                lengths.setdefault(name, {})[role] = entries
                tensors.setdefault(name, {})[role] = largest
    return FreeSizes(tuple(axes), lengths, tensors)


def _part(node: Node, role: str, whole: NDArray[Any], lengths: Sequence[int | None]) -> NDArray[Any]:
    """Return so much of each axis of a tensor. A vector of one number goes on: it is the same everywhere."""
    for length, most in zip(lengths, whole.shape, strict=True):
        if length is not None and length > most:
            if whole.ndim == 1 and length <= MOST_ELEMENTS and (whole == whole[0]).all():
                return np.broadcast_to(whole[:1], (length,))
            fix = "export it with a list of examples, the last as large as it must be"
            raise bad(node, f"at most {most} along an axis of its {role}", str(length), fix)
    return whole[tuple(slice(length) for length in lengths)]


def _entries(name: str, values: Sequence[Any], node: Node, graphs: Sequence[Graph]) -> Entries:
    """Return what each of some integers of a node is: a Length, or None where it is the same at all sizes."""
    several = [_flat(value) for value in values]
    if len({len(entry) for entry in several}) > 1:
        raise _differs(f"node {node.name!r} ({node.op})", f"{name} {values[0]} and {values[1]}")
    entries = []
    for numbers in zip(*several, strict=True):
        differ = any(number != numbers[0] for number in numbers)
        integers = all(isinstance(number, int) for number in numbers)
        length = _length(node, numbers, graphs) if differ and integers else None
        if differ and length is None:
            raise _differs(f"node {node.name!r} ({node.op})", f"{name} {values[0]} and {values[1]}")
        entries.append(length)
    return tuple(entries)


def _flat(value: Any) -> list[Any]:
    """Return the entries of a tuple, and of those in it, one behind the other."""
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple) else [value]


def _filled(value: Any, leaves: Iterator[Any]) -> Any:
    """Return a value of the same form with other entries."""
    return tuple(_filled(part, leaves) for part in value) if isinstance(value, tuple) else next(leaves)


def _expect_alike(nodes: Sequence[Node]) -> None:
    first = nodes[0]
    for node in nodes[1:]:
        if (node.name, node.op, node.inputs) != (first.name, first.op, first.inputs):
            raise _differs(f"node {first.name!r} ({first.op})", f"{node.name!r} ({node.op}) at another size")


def _expect_parts(node: Node, role: str, arrays: Sequence[NDArray[Any]], largest: NDArray[Any]) -> None:
    for array in arrays:
        part = largest[tuple(map(slice, array.shape))]
        if part.shape != array.shape or not np.array_equal(part, array):
            raise _differs(f"node {node.name!r} ({node.op})", f"a {role} of other values")


def _length(node: Node, numbers: Sequence[int], graphs: Sequence[Graph]) -> Length | None:
    """Return the Length that is each of the numbers in its graph; what the node reads is looked at first."""
    names = [*graphs[0].values]
    own, inputs, before = (
        [(name, axis) for name in some for axis in range(len(graphs[0].values[name].shape))]
        for some in (
            node.inputs,
            [value.name for value in graphs[0].inputs],
            names[: names.index(node.name)],
        )
    )
    # What is the same is looked for first: so much more or less fits many a length at a few sizes.
    for forms in (_same, _multiples, _apart):
        for axes in chain(
            combinations(own, 1), combinations(own, 2), combinations(before, 1), combinations(inputs, 2)
        ):
            sizes = [prod(graph.values[name].shape[axis] for name, axis in axes) for graph in graphs]
            for length in forms(axes, sizes, numbers) if len(set(sizes)) > 1 else ():
                if all(
                    length.at({name: graph.values[name].shape for name, _ in axes}) == number
                    for graph, number in zip(graphs, numbers, strict=True)
                ):
                    return length
    return None


_Axes = tuple[tuple[str, int], ...]


def _same(axes: _Axes, sizes: Sequence[int], numbers: Sequence[int]) -> Iterator[Length]:
    yield Length(axes)


def _multiples(axes: _Axes, sizes: Sequence[int], numbers: Sequence[int]) -> Iterator[Length]:
    """Yield what the first number may be of the first size: a multiple, or a part."""
    if numbers[0] % sizes[0] == 0:
        yield Length(axes, factor=numbers[0] // sizes[0])
    if numbers[0] and sizes[0] % numbers[0] == 0:
        yield Length(axes, divisor=sizes[0] // numbers[0])


def _apart(axes: _Axes, sizes: Sequence[int], numbers: Sequence[int]) -> Iterator[Length]:
    yield Length(axes, offset=numbers[0] - sizes[0])


def _differs(where: str, found: str) -> InputError:
    return InputError(
        where,
        expected="the same operations at every size",
        found=found,
        fix="replace what is computed from the size, pass an example whose lengths all differ, or export "
        "without dynamic_size, with a list of examples of the sizes that are needed",
    )
