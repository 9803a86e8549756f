"""Sizes that an ONNX file leaves open: the file is read at several, and what follows from them is found.

Which lengths may differ, and by how much, is found by reading: a file does not say that its maps must halve.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from bitfactor.common.errors import InputError
from bitfactor.format import Graph
from bitfactor.format.signature import FreeSizes, free_sizes

_TRIED = (32, 64, 28, 96, 128, 224, 256, 299, 384, 512)
_STEPS = (1, 2, 4, 8, 16, 32, 64)

Lengths = Mapping[str, int]
Read = Callable[[onnx.ModelProto], Any]


def given(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that no stored tensor stands for."""
    stored = {one.name for one in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


def open_axes(model: onnx.ModelProto) -> dict[str, list[tuple[int, int]]]:
    """Return the (input, axis of a sample) of each open length but the batch, by the name of the length."""
    found: dict[str, list[tuple[int, int]]] = {}
    for i, value in enumerate(given(model)):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim[1:]):
            if not dim.dim_value:
                found.setdefault(dim.dim_param or f"axis {axis + 2} of {value.name}", []).append((i, axis))
    return found


def fixed(model: onnx.ModelProto, lengths: Lengths) -> onnx.ModelProto:
    """Return the model with its open lengths as numbers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    values = given(copy)
    for name, axes in open_axes(model).items():
        for i, axis in axes:
            values[i].type.tensor_type.shape.dim[axis + 1].dim_value = lengths[name]
    return copy


def first_lengths(model: onnx.ModelProto, read: Read) -> dict[str, int]:
    """Return lengths at which the model is read: those that a file of ours states, or the first that do."""
    errors = dict[str, InputError]()
    for lengths in _tries(model):
        try:
            read(fixed(model, lengths))
        except InputError as error:
            errors.setdefault(str(error), error)
        else:
            return lengths
    if len(errors) == 1:  # which is no matter of sizes
        raise next(iter(errors.values()))
    raise InputError(
        f"open sizes {', '.join(open_axes(model))}",
        expected=f"a network that takes one of the lengths {', '.join(map(str, _TRIED))}",
        found=next(iter(errors)),
        fix="fix its sizes with onnx.tools.update_model_dims",
    )


def _tries(model: onnx.ModelProto) -> Iterator[dict[str, int]]:
    axes, values = open_axes(model), given(model)
    known = next((p.value for p in model.metadata_props if p.key == "shapes"), "{}")
    try:
        shapes = json.loads(known)
        yield {name: int(shapes[values[i].name][axis]) for name, ((i, axis), *_) in axes.items()}
    except (ValueError, TypeError, LookupError):  # none, or another program's
        pass
    yield from (dict.fromkeys(axes, length) for length in _TRIED)


def steps_of(model: onnx.ModelProto, own: Lengths, read: Read) -> dict[str, int]:
    """Return by how much each open length may grow; one that may not is left out."""

    def reads(name: str, more: int) -> bool:
        try:
            read(fixed(model, {**own, name: own[name] + more}))
        except InputError:
            return False
        return True

    found = {
        # Twice, as one step may do where a pool rounds.
        name: next((step for step in _STEPS if all(reads(name, step * times) for times in (1, 2))), 0)
        for name in own
    }
    return {name: step for name, step in found.items() if step}


def longer(own: Lengths, steps: Mapping[str, int], times: int) -> dict[str, int]:
    """Return lengths so many steps on, and no two alike."""
    more = {name: step * (times + i) for i, (name, step) in enumerate(steps.items())}
    return {name: length + more.get(name, 0) for name, length in own.items()}


def free_of(graphs: Sequence[Graph], axes: Sequence[tuple[int, int, int]], far: Sequence[Graph]) -> FreeSizes:
    """Return what follows from the lengths of a graph, which is first, and hold it against graphs far off."""
    where, found = "open sizes", "others at another size"
    try:
        free = free_sizes(graphs, axes)
        if all(_is_planned(free, graphs[0], other) for other in far):
            return free
    except InputError as error:
        where, found = str(error).partition(": expected")[0], error.found
    raise InputError(
        where,
        expected="the same operations at every size",
        found=found,
        fix="fix the sizes of the ONNX file with onnx.tools.update_model_dims",
    )


def _is_planned(free: FreeSizes, graph: Graph, other: Graph) -> bool:
    planned = free.graph_for(graph, [value.shape for value in other.inputs])
    return [(n.name, n.attributes) for n in planned.nodes] == [(n.name, n.attributes) for n in other.nodes]
