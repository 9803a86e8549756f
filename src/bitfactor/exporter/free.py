"""Which lengths of a model's inputs may be others: found by running it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from bitfactor.common.errors import InputError
from bitfactor.format import Graph
from bitfactor.format.free import FreeSizes
from bitfactor.nn.model import Call, noise_like

_STEPS = (1, 2, 4, 8, 16, 32, 64)
_TIMES, _MOST = (8, 4, 2), 1 << 25  # elements of all values
Axis = tuple[int, int]  # number of the input, axis of a sample


@dataclass(frozen=True)
class Free:
    """Axes that have one length, which may grow by multiples of `step`."""

    axes: tuple[Axis, ...]
    step: int


def free_axes(model: nn.Module, call: Call) -> list[Free]:
    """Return the axes whose length may be another, each with the smallest step that the model takes.

    The axes of one length in several inputs, such as ids and their mask, are tried together where none can
    change by itself.
    """
    every = [(i, axis) for i, x in enumerate(call.tensors) for axis in range(x.dim() - 1)]
    found = [free for axis in every if (free := _free(model, call, (axis,)))]
    tried = {axis for free in found for axis in free.axes}
    tied: dict[int, list[Axis]] = {}
    for axis in every:
        if axis not in tried:
            tied.setdefault(_length(call, axis), []).append(axis)
    for axes in tied.values():
        if len({i for i, _ in axes}) > 1 and (free := _free(model, call, tuple(axes))):
            found.append(free)
    if not found:
        raise InputError(
            "dynamic_size",
            expected="a model that takes inputs of other sizes than the example's",
            found="none that it takes",
            fix="leave it out, or replace what fixes the size, such as a flatten before a linear layer",
        )
    return found


def _length(call: Call, axis: Axis) -> int:
    return call.tensors[axis[0]].shape[axis[1] + 1]


def _free(model: nn.Module, call: Call, axes: tuple[Axis, ...]) -> Free | None:
    for step in _STEPS:
        # Twice, as one step may do where a pool rounds.
        if all(_runs(model, resized(call, dict.fromkeys(axes, times * step))) for times in (1, 2)):
            return Free(axes, step)
    return None


def _runs(model: nn.Module, call: Call) -> bool:
    try:
        with torch.no_grad():
            call(model)
    except Exception:  # whatever the model's own code says of a size it was not made for
        return False
    return True


def resized(call: Call, more: dict[Axis, int]) -> Call:
    """Return the call with axes of inputs so much longer, or shorter; the values are the example's, again."""
    number = iter(range(len(call.tensors)))

    def longer(x: Tensor) -> Tensor:
        i = next(number)
        for axis in range(x.dim() - 1):
            length = x.shape[axis + 1]
            places = torch.arange(length + more.get((i, axis), 0)) % length
            x = x.index_select(axis + 1, places)
        return x

    return call.mapped(longer)


def other_sizes(call: Call, free: Sequence[Free]) -> Iterator[Call]:
    """Yield the call at three larger sizes; no two lengths that change by themselves grow alike."""
    for least in (1, 3, 8):
        more = {axis: one.step * (least + i) for i, one in enumerate(free) for axis in one.axes}
        yield resized(call, more)


def far_sizes(
    model: nn.Module, call: Call, free: Sequence[Free], graph: Graph, sizes: FreeSizes
) -> Iterator[tuple[Call, Graph]]:
    """Yield a sample far from the example in size, with what the file has as its graph.

    That is at the smallest size that the model takes, at one half-way from there, and at one several times
    the example's, as large as values of 2^25 elements in all allow.
    """
    one = call.mapped(lambda x: x[:1])
    least = [_least(model, one, each) for each in free]
    for counts in (least, [count // 2 for count in least]):
        other = _apart(one, free, counts)
        planned = _planned(other, graph, sizes)
        if planned and _runs(model, other):
            yield other, planned
    for times in _TIMES:
        # Two lengths of an example may be the same: here they differ.
        counts = [(times - 1) * _length(one, each.axes[0]) // each.step + i for i, each in enumerate(free)]
        other = _apart(one, free, counts)
        planned = _planned(other, graph, sizes)
        fits = planned and sum(prod(value.shape) for value in planned.values.values()) <= _MOST
        if planned and fits and _runs(model, other):
            yield other, planned
            return


def _apart(call: Call, free: Sequence[Free], counts: Sequence[int]) -> Call:
    """Return the call, of other values, with each free length so many steps longer."""
    more = {axis: one.step * count for one, count in zip(free, counts, strict=True) for axis in one.axes}
    return resized(call, more).mapped(noise_like)


def _least(model: nn.Module, call: Call, free: Free) -> int:
    """Return how many steps, as a negative number, lead to about the smallest length that the model takes."""
    most = (_length(call, free.axes[0]) - 1) // free.step
    kept = (0, *(1 << i for i in range(most.bit_length())))
    return next((n - most for n in kept if n < most and _runs(model, _apart(call, [free], [n - most]))), 0)


def _planned(call: Call, graph: Graph, sizes: FreeSizes) -> Graph | None:
    """Return the graph of the file for a call; None where a session refuses it."""
    try:
        return sizes.graph_for(graph, [tuple(x.shape[1:]) or (1,) for x in call.tensors])
    except InputError:
        return None
