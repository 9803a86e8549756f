"""Places that are taken, found or set, by constants or by computed indices."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.functions import (
    add,
    below,
    clip,
    equal,
    mul,
    negated,
    unless_outside,
    where,
)
from bitfactor.exporter.operators.pooling import reduced
from bitfactor.exporter.operators.shapes import cat, permute, taken, unsqueezed
from bitfactor.exporter.view import View


def index(b: Builder, x: View, indices: Sequence[View | Tensor | None]) -> View:
    """Take places by constants, of one dimension or of several at once; or of each sample its own place."""
    given = {dim: places for dim, places in enumerate(indices) if places is not None}
    constants = [places for places in given.values() if isinstance(places, Tensor)]
    computed = [places for places in given.values() if isinstance(places, View)]
    of_samples = torch.arange(b.batch.length)
    if [*given] == [0, 1] and computed and constants and torch.equal(constants[0].flatten(), of_samples):
        return _of_samples(b, x, computed[0])
    if computed:
        raise b.refused("indices that are constants, or one of each sample", "others", "use gather")
    constants = [t.nonzero()[:, 0] if t.dtype == torch.bool else t for t in constants]
    dims = list(given)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        order = [i for i in range(len(x.dims)) if i not in dims]
        return index(b, permute(b, x, [*dims, *order]), constants)
    sizes = [x.shape[dim] for dim in dims]
    inside = [t % n for t, n in zip(constants, sizes, strict=True)]
    places = [t.expand(np.broadcast_shapes(*(u.shape for u in inside))) for t in inside]
    flat = torch.zeros_like(places[0])
    for one, n in zip(places, sizes, strict=True):
        flat = flat * n + one
    before, after = x.shape[: dims[0]], x.shape[dims[-1] + 1 :]
    whole = b.reshaped(x, (*before, math.prod(sizes), *after)) if len(dims) > 1 else x
    y = taken(b, whole, dims[0], flat.flatten().tolist())
    return y if flat.ndim == 1 else b.reshaped(y, (*before, *flat.shape, *after))


def _of_samples(b: Builder, x: View, places: View) -> View:
    """Return of each sample the place that a value (N,) says: all of them, times 1 at that place, else 0.

    From -1 down it counts from the end.
    """
    count = x.shape[1]
    places = add(b, places, mul(b, below(b, places, 0.0), float(count)))
    hit = equal(b, replace(places, dims=(*places.dims, ())), torch.arange(count))
    inner = ((),) * (len(x.dims) - 2)
    found = reduced(b, "sum", mul(b, x, replace(hit, dims=(*hit.dims, *inner))), [1], False)
    return unless_outside(b, found, replace(places, dims=(*places.dims, *inner)), count)


def gather(b: Builder, x: View, dim: int, places: View | Tensor, sparse_grad: bool = False) -> View:
    """By a constant that is the same for all samples; or, for a computed one, all times 1 or 0."""
    dim %= len(x.dims)
    if isinstance(places, Tensor):
        flat = torch.arange(math.prod(x.shape[1:])).reshape(1, *x.shape[1:]).expand(len(places), *x.shape[1:])
        inner = tuple(slice(n) for n in places.shape)
        order = [i for i in range(places.ndim) if i != dim]
        flat = flat.permute(dim, *order)[(slice(None), *(inner[i] for i in order))].movedim(0, dim)
        taken_ = flat.gather(dim, places)
        if dim == 0 or not bool((taken_ == taken_[:1]).all()):
            raise b.refused("places that are the same for all samples", "others", "use buffers")
        y = taken(b, b.reshaped(x, (x.shape[0], math.prod(x.shape[1:]))), 1, taken_[0].flatten().tolist())
        return b.reshaped(y, (x.shape[0], *places.shape[1:]))
    count, after = x.shape[dim], len(x.dims) - dim - 1
    which = torch.arange(count).reshape(count, *(1,) * (after + 1))
    apart = replace(places, dims=(*places.dims[:dim], (), *places.dims[dim:]))
    values = replace(x, dims=(*x.dims[: dim + 1], (), *x.dims[dim + 1 :]))
    found = reduced(b, "sum", mul(b, values, equal(b, apart, which)), [dim], False)
    return unless_outside(b, found, places, count)


def diagonal(b: Builder, x: View, offset: int = 0, first: int = 0, second: int = 1) -> View:
    first, second = first % len(x.dims), second % len(x.dims)
    rest = [i for i in range(len(x.dims)) if i not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    flat = b.reshaped(permute(b, x, [*rest, first, second]), (*(x.shape[i] for i in rest), rows * columns))
    inside = [(i, i + offset) for i in range(rows) if 0 <= i + offset < columns]
    return taken(b, flat, -1, [i * columns + j for i, j in inside])


def put(b: Builder, x: View | Tensor, value: View | Tensor, dim: int, places: Sequence[int]) -> View:
    """Return x with some places of a dimension set to `value`, which has as many."""
    count = x.shape[dim]
    of = {place: count + i for i, place in enumerate(places)}
    both = cat(b, [x, b.expanded_to(value, (*x.shape[:dim], len(places), *x.shape[dim + 1 :]))], dim)
    return taken(b, both, dim, [of.get(i, i) for i in range(count)])


def slice_scatter(
    b: Builder, x: View | Tensor, value: View | Tensor, dim: int = 0, start: int | None = None,
    stop: int | None = None, step: int = 1,
) -> View:  # fmt: skip
    return put(b, x, value, dim, range(x.shape[dim])[start:stop:step])


def select_scatter(b: Builder, x: View | Tensor, value: View | Tensor, dim: int, place: int) -> View:
    return put(b, x, unsqueezed(value, dim), dim, [place % x.shape[dim]])


def index_put(
    b: Builder,
    x: View | Tensor,
    indices: Sequence[View | Tensor | None],
    value: View | Tensor,
    accumulate: bool = False,
) -> View:
    """Set places of one dimension, by a constant; or where a condition holds."""
    given = [(dim, places) for dim, places in enumerate(indices) if places is not None]
    (dim, places), *others = given
    if isinstance(places, View) and len(places.dims) == len(x.shape) and not (others or accumulate):
        return where(b, places, value, x)
    if others or accumulate or not isinstance(places, Tensor) or places.ndim != 1:
        raise b.refused("places of one dimension that are set by a constant", "others", "use where, or cat")
    if places.dtype == torch.bool:
        places = places.nonzero()[:, 0]
    return put(b, x, value, dim, [int(i) % x.shape[dim] for i in places])


def written(b: Builder, x: View | Tensor, value: View | Tensor, *_: Any) -> View | Tensor:
    """What a value is after another has been copied to it."""
    return b.expanded_to(value, x.shape)


def index_select(b: Builder, x: View, dim: int, places: Tensor) -> View:
    return taken(b, x, dim, [int(i) for i in places])


def one_hot(b: Builder, x: View, classes: int) -> View:
    """1 at each place's class, else 0; the classes are a last dimension. torch's own looks at the batch."""
    return equal(b, replace(x, dims=(*x.dims, ())), torch.arange(classes))


def place_of(how: str) -> Any:
    """Return the rule of argmax or argmin: the first place that has the largest or smallest value."""

    def rule(b: Builder, x: View, dim: int | None = None, keepdim: bool = False) -> View:
        if dim is None:
            raise b.refused("places in one dimension", "in all, over the batch", "use flatten(1), and a dim")
        dim %= len(x.dims)
        count = x.shape[dim]
        which = torch.arange(count).reshape(count, *(1,) * (len(x.dims) - 1 - dim))
        x = clip(b, b.real(x))  # of two infinities the difference is NaN
        others = negated(b, equal(b, x, reduced(b, how, x, [dim], True)))
        return reduced(b, "min", add(b, mul(b, others, float(count)), which), [dim], keepdim)

    return rule


def best_of_dim(how: str) -> Any:
    """Return the rule of max or min over a dimension: the values, and their places where they are used."""

    def rule(b: Builder, x: View, dim: int, keepdim: bool = False) -> list[Any]:
        return [reduced(b, how, x, [dim], keepdim), lambda: place_of(how)(b, x, dim, keepdim)]

    return rule
