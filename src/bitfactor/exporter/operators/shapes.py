"""Operators that move numbers and change none; most only see a value in another way."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder, floats
from bitfactor.exporter.operators.functions import differs, truncated, unless_outside
from bitfactor.exporter.view import Axes, Axis, View, common


def same(b: Builder, x: View, *_: Any, **__: Any) -> View:
    """Lower what changes nothing here."""
    return x


def cast(b: Builder, x: View, *args: Any, **kwargs: Any) -> View:
    """Values stay as they are, except what becomes an integer, or a condition."""
    kind = next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)), None)
    if kind is None and args and isinstance(args[0], Tensor | View):
        kind = b.given[-1].dtype
    return cast_to(b, x, kind)


def cast_to(b: Builder, x: View, kind: torch.dtype | None) -> View:
    before = b.given[0].dtype
    if kind is None or kind == before or before == torch.bool:
        return x
    if kind == torch.bool:
        return differs(b, x, 0.0)
    return x if kind.is_floating_point or not before.is_floating_point else truncated(b, x)


def filled(value: float) -> Callable[..., Tensor]:
    """Return the rule of a constant that has the shape of a value."""
    return lambda b, x, dtype=None, **_: torch.full(x.shape, value, dtype=dtype)


def reshape(b: Builder, x: Any, *_: Any, **__: Any) -> Any:
    """Lower any operator that reads the numbers in the same order; torch has worked out the shape.

    Where the shape is that of a value, what takes it may be a constant, here as in `expand`.
    """
    return x.reshape(b.result) if isinstance(x, Tensor) else b.reshaped(x, b.result)


def expand(b: Builder, x: Any, *_: Any, **__: Any) -> Any:
    return b.expanded_to(x, b.result)


def repeat(b: Builder, x: View, counts: Sequence[int]) -> View:
    dims = list(((),) * (len(counts) - len(x.dims)) + x.dims)
    for i, count in enumerate(counts):
        if count > 1:
            dims[i] = (Axis(count), *dims[i])
    return replace(x, dims=tuple(dims))


def permute(b: Builder, x: View, dims: Sequence[int]) -> View:
    return replace(x, dims=tuple(x.dim(dim) for dim in dims))


def transpose(b: Builder, x: View, first: int, second: int) -> View:
    order = list(range(len(x.dims)))
    order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


def transposed(b: Builder, x: View) -> View:
    return transpose(b, x, 0, 1) if len(x.dims) == 2 else x


def cat(b: Builder, values: Sequence[View | Tensor], dim: int = 0) -> View:
    given = [x for x in values if not isinstance(x, Tensor) or x.numel()]
    dim %= max(len(x.shape) for x in given)
    views = [b.real(x if isinstance(x, View) else b.stored(x, kept=dim)).apart() for x in given]
    first = max(views, key=lambda x: len(x.memory))
    for x in views:
        first, _, _ = _matched(b, first, x, dim)
    _, axis, first = b.isolated(_physical(b, first, dim), dim)
    names = [_lying_alike(b, x, first, dim) for x in views]
    if len(names) == 1:
        return views[0]
    op, attributes = ("concat", {}) if axis == 0 else ("join", {"axis": axis})
    return b.resized(first, dim, b.emit(op, names, attributes), axis)


def _matched(b: Builder, first: View, x: View, dim: int) -> tuple[View, View, dict[Axis, Axis]]:
    """Cut the axes of two views alike, except in one dimension."""
    hidden = replace(first, dims=(*first.with_dim(dim, ()).dims, first.dim(dim)))
    other = replace(x, dims=(*x.with_dim(dim, ()).dims, ()))
    found = common(hidden, other)
    if found is None:
        raise b.refused("tensors that are joined in one dimension", f"{first.shape} and {x.shape}", "reshape")
    hidden, other, pairs = found
    *dims, own = hidden.dims
    whole = other.dims[:-1]
    return (
        replace(hidden, dims=(*dims[:dim], own, *dims[dim + 1 :])),
        replace(other, dims=(*whole[:dim], x.dims[dim], *whole[dim + 1 :])),
        pairs,
    )


def _physical(b: Builder, x: View, dim: int) -> View:
    """Return the view with all that it repeats written out, except in the dimension itself."""
    repeated = [axis for i, each in enumerate(x.dims) if i != dim for axis in each if x.is_repeated(axis)]
    if not repeated:
        return x
    order = (*repeated, *x.memory)
    name = b.arranged(x, order[:-1], order[-1:]) if len(order) > 1 else b.arranged(x, order)
    return View(name, order, x.dims)


def _lying_alike(b: Builder, x: View, first: View, dim: int) -> str:
    """Return the value arranged as that of `first`, with its own length in the dimension."""
    _, x, pairs = _matched(b, first, x, dim)
    own = first.dim(dim)
    instead = {mine: theirs for theirs, mine in pairs.items()}
    order: list[Axes] = []
    for group in b.groups_of(first):
        if own and own[0] in group:
            order.append(x.dim(dim))
        else:
            order.append(tuple(instead.get(axis, axis) for axis in group))
    if not own:
        order.insert(0, x.dim(dim))
    return b.arranged(x, *order)


def unsqueezed(x: View | Tensor, dim: int) -> View | Tensor:
    """Return x with one more dimension, of length 1."""
    dim %= len(x.shape) + 1
    if isinstance(x, Tensor):
        return x.unsqueeze(dim)
    return replace(x, dims=(*x.dims[:dim], (), *x.dims[dim:]))


def stack(b: Builder, values: Sequence[View | Tensor], dim: int = 0) -> View:
    return cat(b, [unsqueezed(x, dim) for x in values], dim % (len(values[0].shape) + 1))


_ALL = 1 << 31  # a slice without an end has one that is larger


def _expect_no_fewer_samples(b: Builder, x: View, dim: int, most: int) -> None:
    """Refuse to take at most so many samples: the example has fewer, another batch may have more."""
    if x.shape[dim] < most and any(axis.batch for axis in x.dims[dim]):
        raise b.refused("operations on each sample by itself", f"{most} samples at most", "take all of them")


def slice_(
    b: Builder, x: View, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> View:
    size = x.shape[dim]
    if stop is not None and stop < _ALL:
        _expect_no_fewer_samples(b, x, dim, stop)
    if start is not None and start < 0:
        _expect_no_fewer_samples(b, x, dim, -start)
    first, last, _ = slice(start, stop).indices(size)
    if (first, last, step) == (0, size, 1):
        return x
    if all(x.is_repeated(axis) for axis in x.dim(dim)):
        count = len(range(first, last, step))
        return x.with_dim(dim, (Axis(count),) if count > 1 else ())
    name, axis, view = b.isolated(b.real(x), dim)
    return b.resized(view, dim, b.emit("slice", [name], {"range": (axis, first, last, step)}), axis)


def select(b: Builder, x: View, dim: int, index: int) -> View:
    first = index % x.shape[dim]
    return slice_(b, x, dim, first, first + 1).with_dim(dim)


def taken(b: Builder, x: View, dim: int, indices: Sequence[int]) -> View:
    """Return the places of a dimension that have these indices."""
    name, axis, view = b.isolated(b.real(x), dim)
    return b.resized(view, dim, b.emit("take", [name], {"axis": axis, "indices": tuple(indices)}), axis)


def flip(b: Builder, x: View, dims: Sequence[int]) -> View:
    for dim in dims:
        x = taken(b, x, dim, range(x.shape[dim])[::-1])
    return x


def pad(
    b: Builder, x: View, widths: Sequence[int], mode: str = "constant", value: float | None = None
) -> View:
    """Pad the last dimensions, as torch.nn.functional.pad."""
    for i in range(len(widths) // 2):
        before, after = widths[2 * i : 2 * i + 2]
        if before or after:
            x = _padded(b, x, len(x.dims) - 1 - i, before, after, mode, value or 0.0)
    return x


def _padded(b: Builder, x: View, dim: int, before: int, after: int, mode: str, value: float) -> View:
    size = x.shape[dim]
    if before < 0 or after < 0:
        x = slice_(b, x, dim, max(-before, 0), size - max(-after, 0))
        return _padded(b, x, dim, max(before, 0), max(after, 0), mode, value)
    if before == after == 0:
        return x
    if mode == "constant":
        name, axis, view = b.isolated(b.real(x), dim)
        padding = {"axis": axis, "before": before, "after": after, "value": float(value)}
        return b.resized(view, dim, b.emit("pad", [name], padding), axis)
    numpys = {"replicate": "edge", "reflect": "reflect", "circular": "wrap"}
    places = np.pad(np.arange(size), (before, after), numpys[mode])  # type: ignore[call-overload]
    return taken(b, x, dim, places.tolist())


def windows(b: Builder, x: View, dim: int, size: int, step: int, spread: int = 1) -> View:
    """Windows of a dimension, which come last, of places that are `spread` apart."""
    dim %= len(x.dims)
    count = (x.shape[dim] - spread * (size - 1) - 1) // step + 1
    if size == step and spread == 1:
        x = slice_(b, x, dim, 0, count * step)
        parts = b.reshaped(x, (*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    else:
        y = taken(b, x, dim, [i * step + k * spread for i in range(count) for k in range(size)])
        parts = b.reshaped(y, (*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    order = [i for i in range(len(parts.dims)) if i != dim + 1]
    return permute(b, parts, [*order, dim + 1])


def im2col(b: Builder, x: View, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
           stride: Sequence[int]) -> View:  # fmt: skip
    """(N, C, H, W) -> (N, C kh kw, windows)."""
    x = pad(b, x, (padding[1], padding[1], padding[0], padding[0]))
    y = windows(b, x, 2, kernel[0], stride[0], dilation[0])
    y = windows(b, y, 3, kernel[1], stride[1], dilation[1])
    n, c, h, w, kh, kw = y.shape
    return b.reshaped(permute(b, y, (0, 1, 4, 5, 2, 3)), (n, c * kh * kw, h * w))


def split_with_sizes(b: Builder, x: View, sizes: Sequence[int], dim: int = 0) -> list[View]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice_(b, x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def split(b: Builder, x: View, size: int, dim: int = 0) -> list[View]:
    total = x.shape[dim]
    _expect_no_fewer_samples(b, x, dim, size)
    return split_with_sizes(b, x, [min(size, total - start) for start in range(0, total, size)], dim)


def chunk(b: Builder, x: View, count: int, dim: int = 0) -> list[View]:
    return split(b, x, -(-x.shape[dim] // count), dim)


def unbind(b: Builder, x: View, dim: int = 0) -> list[View]:
    return [select(b, x, dim, i) for i in range(x.shape[dim])]


def embedding(b: Builder, table: Tensor, x: View, *_: Any) -> View:
    """The rows of a table that indices stand for."""
    rows, width = table.shape
    channels = (Axis(width),) if width > 1 else ()
    name = b.emit("embedding", [b.real(x).name], table=floats(table))
    y = View(name, (*x.memory, *channels), (*x.dims, channels))
    checked = x.name in {value.name for value in b.inputs}  # by the session
    return y if checked else unless_outside(b, y, replace(x, dims=(*x.dims, ())), rows)
