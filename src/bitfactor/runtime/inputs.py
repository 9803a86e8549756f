"""What a session is called with, checked; and several inputs as one, which is what a program takes."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import shown
from bitfactor.common.errors import InputError, near_matches
from bitfactor.format.graph import Graph, Value
from bitfactor.format.operations import OPERATIONS, Node
from bitfactor.format.signature import as_float

Float = NDArray[np.float32]


def by_name(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[str, NDArray[Any]]]:
    """Return the inputs of a call with their names, in their order."""
    for name in kwargs:
        if name not in names:
            raise InputError(name, expected="an input", found="no such", fix=near_matches(name, names))
    given = dict(zip(names, args, strict=False))
    twice = next((name for name in given if name in kwargs), None)
    missing = [name for name in names if name not in given and name not in kwargs]
    if len(args) > len(names) or twice or missing:
        found = f"{twice} twice" if twice else f"{len(args) + len(kwargs)}"
        fix = f"pass {', '.join(missing)}" if missing else "pass each once"
        raise InputError("the call", expected=f"the inputs {', '.join(names)}", found=found, fix=fix)
    # A single input is called x in messages, as in the documentation.
    where = dict.fromkeys(names, "x") if len(names) == 1 else {name: name for name in names}
    return [(where[name], array_of({**given, **kwargs}[name], where[name])) for name in names]


def array_of(x: object, where: str) -> NDArray[Any]:
    """Return what is like an array of values as one."""
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:  # rows that differ, or a tensor that must stay
        found = f"a {type(x).__name__} that is none ({' '.join(str(error).split())[:120]})"
        raise InputError(
            where, expected="an array", found=found, fix="make one, as numpy.asarray does"
        ) from error
    if array.dtype.kind in "biufc":
        return array
    path = isinstance(x, str | os.PathLike)
    raise InputError(
        where,
        expected="an array of values",
        found=shown(x),
        fix="session.predict(image) takes a path" if path else "pass a batch, as session.input_shape says",
    )


def checked_inputs(
    given: Sequence[tuple[str, NDArray[Any]]],
    types: Sequence[str],
    shapes: Sequence[Sequence[tuple[int, ...]]],
) -> list[Float]:
    """Return the inputs as the graph takes them; `shapes` are those that each may have."""
    for (where, x), allowed in zip(given, shapes, strict=True):
        if x.ndim < 1 or x.shape[1:] not in allowed:
            names = dict.fromkeys(f"(N{''.join(f', {n}' for n in shape)})" for shape in allowed)
            fix = _fix_of_shape(x.shape, allowed)
            raise InputError(where, expected=f"shape {' or '.join(names)}", found=str(x.shape), fix=fix)
        if len(x) != len(given[0][1]):
            expected, found = f"{len(given[0][1])} samples, as {given[0][0]}", str(len(x))
            raise InputError(where, expected=expected, found=found, fix="pass as many of each")
    return [as_float(x, kind, where) for (where, x), kind in zip(given, types, strict=True)]


def _fix_of_shape(found: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> str:
    channels = {shape[0] for shape in shapes if shape}
    if len(found) > 2 and found[-1] in channels and found[-3] not in channels:
        return "put the channels first, as in x.transpose(0, 3, 1, 2); session.predict(image) takes them last"
    if found in shapes:
        return "add the batch dimension, x[None]"
    short = any(len(found) == len(shape) for shape in shapes)
    return "resize, and add the batch dimension" if short else "resize"


_MOVES = ("flatten", "reshape", "permute", "rearrange", "slice", "take")
_ANY = np.iinfo(np.int64).max  # rows: no embedding takes it

Rows = Mapping[str, NDArray[np.int64]]


def rows_of(graph: Graph) -> Rows:
    """Return input -> of each of its numbers, how many rows the embeddings have that take it; the fewest."""
    nodes = {node.name: node for node in graph.nodes}
    shapes = {value.name: value.shape for value in graph.inputs}
    rows: dict[str, NDArray[np.int64]] = {}
    for node in graph.nodes:
        if node.op != "embedding":
            continue
        moves, name = list[Node](), node.inputs[0]
        while name in nodes and nodes[name].op in _MOVES:
            moves.append(nodes[name])
            name = nodes[name].inputs[0]
        if name in shapes:
            shape = shapes[name]
            places: NDArray[Any] = np.arange(math.prod(shape)).reshape(1, *shape)
            for move in reversed(moves):
                places = OPERATIONS[move.op].reference(move, places)
            own, taken = rows.setdefault(name, np.full(shape, _ANY)).reshape(-1), places.reshape(-1)
            own[taken] = np.minimum(own[taken], len(node.tensors["table"]))
    return rows


def expect_rows(xs: Sequence[Float], names: Sequence[str], rows: Rows) -> None:
    """Raise InputError where an input asks an embedding for a row that it has not."""
    for x, name in zip(xs, names, strict=True):
        if name in rows and (wrong := (rows[name] != _ANY) & ((x < 0) | (x >= rows[name]))).any():
            place = np.argwhere(wrong)[0].tolist()
            raise InputError(
                name,
                expected=f"indices of 0 to {rows[name][tuple(place[1:])] - 1}",
                found=f"{int(x[tuple(place)])} at {place}",
                fix="look at how the indices are made",
            )


def expect_finite(xs: Sequence[Float], names: Sequence[str]) -> None:
    """Raise InputError where one of the inputs holds NaN or infinity."""
    for x, name in zip(xs, names, strict=True):
        if not np.isfinite(x).all():
            raise not_finite(x, name)


def expect_numbers(outputs: Sequence[NDArray[Any]], names: Sequence[str]) -> None:
    """Raise InputError where an output is NaN; a sum tells whether one may be."""
    for y, name in zip(outputs, names, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            doubtful = y.dtype == np.float32 and np.isnan(y.sum())
        if doubtful and np.isnan(y).any():
            raise InputError(
                f"output {name!r}",
                expected="numbers",
                found=f"NaN at {np.argwhere(np.isnan(y))[0].tolist()}",
                fix="look for what divides by 0, grows without bound or takes a place that is not there",
            )


def not_finite(x: Float, where: str) -> InputError:
    """Return the error of an input with NaN or infinity."""
    places = np.argwhere(~np.isfinite(x)).tolist()
    found = f"{x[tuple(places[0])]} at {places[0]}" if places else "one that was changed during the run"
    return InputError(where, expected="finite numbers", found=found, fix="clean the input")


def packed(graph: Graph) -> Graph:
    """Return a graph that does the same, of one input: the values of all inputs behind each other."""
    if not graph.others:
        return graph
    taken, first, nodes = {*graph.values}, 0, list[Node]()
    whole = _unused("inputs", taken)
    for value in graph.inputs:
        last = first + math.prod(value.shape)
        part = value.name if len(value.shape) == 1 else _unused(f"{value.name}.values", taken)
        nodes.append(Node(part, "slice", (whole,), {"range": (0, first, last, 1)}))
        if part != value.name:
            nodes.append(Node(value.name, "reshape", (part,), {"shape": value.shape}))
        first = last
    return Graph(Value(whole, (first,), "float32"), (*nodes, *graph.nodes), graph.outputs)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
