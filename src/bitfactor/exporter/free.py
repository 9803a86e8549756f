"""Which lengths of a model's inputs may be others: found by running it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitfactor.errors import InputError
from bitfactor.nn.example import Call

_STEPS = (1, 2, 4, 8, 16, 32, 64)
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

    Raises
    ------
    InputError
        If there are none.
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
    """Return the call with axes of inputs so much longer; the values are the example's, again."""
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
