"""Pooling of maps, lines and volumes, interpolation between pixels, sums and other reductions.

Last come places that are taken, found or set, by constants or by computed indices.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.convolutions import linear, numbers, sizes_of
from bitfactor.exporter.operators.functions import (
    NEVER,
    absolute,
    add,
    below,
    clip,
    differs,
    equal,
    mul,
    negated,
    power,
    sub,
    unless_outside,
    where,
)
from bitfactor.exporter.operators.shapes import (
    cast_to,
    cat,
    pad,
    permute,
    slice_,
    taken,
    transpose,
    unsqueezed,
    windows,
)
from bitfactor.exporter.view import View, size


def _window(b: Builder, x: View, sides: int, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    height, width = sizes_of(padding, sides, 0)
    return {
        "kernel": sizes_of(kernel, sides, 1),
        "stride": sizes_of(stride or kernel, sides, 1),
        "padding": (height, width, height, width),
    }


def max_pool(
    b: Builder, x: View, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil: bool = False,
) -> View:  # fmt: skip
    if any(n > 1 for n in numbers(dilation, len(x.dims) - 2)):
        return _dilated(b, x, kernel, stride or kernel, padding, dilation, ceil)
    if len(x.dims) == 5:
        return _in_turn(b, max_pool, x, kernel, stride, padding, ceil=ceil)
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    return b.on_maps("max_pool2d", x, len(x.dims) - 2, _ceiled(x, window) if ceil else window)


def max_pool_with_places(b: Builder, *args: Any, **kwargs: Any) -> list[View | None]:
    """Lower to the maxima; their places, which torch gives as well, the file does not hold."""
    return [max_pool(b, *args, **kwargs), None]


def _dilated(
    b: Builder, x: View, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> View:  # fmt: skip
    """One side after the other: the largest of each window, whose places are apart."""
    sides = len(x.dims) - 2
    for i, (k, s, p, d) in enumerate(
        zip(*(numbers(v, sides) for v in (kernel, stride, padding, dilation)), strict=True)
    ):
        length, reach = x.shape[2 + i], d * (k - 1) + 1
        left = length + 2 * p - reach
        count = (-(-left // s) if ceil else left // s) + 1
        count -= (count - 1) * s >= length + p
        far = max((count - 1) * s + reach - length - p, 0)
        y = pad(b, x, (*(0, 0) * (sides - 1 - i), p, far), value=NEVER)
        x = reduced(b, "max", windows(b, y, 2 + i, k, s, d), [-1])
    return x


def _in_turn(b: Builder, pool: Any, x: View, kernel: Any, stride: Any, padding: Any, **more: Any) -> View:
    """Pool volumes (N, C, D, H, W): over height and width, then over depth."""
    k, s, p = (numbers(value, 3) for value in (kernel, stride or kernel, padding))
    n, channels, depth, *_ = x.shape
    frames = b.reshaped(
        replace(x, dims=(*x.dims[:1], *x.dims[2:3], x.dims[1], *x.dims[3:])),
        (n * depth, channels, *x.shape[3:]),
    )
    y = pool(b, frames, k[1:], s[1:], p[1:], **more)
    _, _, height, width = y.shape
    apart = b.reshaped(y, (n, depth, channels, height * width))
    lines = replace(apart, dims=(apart.dims[0], apart.dims[2], apart.dims[1], apart.dims[3]))
    y = pool(b, lines, [k[0], 1], [s[0], 1], [p[0], 0], **more)
    return b.reshaped(y, (n, channels, y.shape[2], height, width))


def _ceiled(x: View, window: dict[str, Any]) -> dict[str, Any]:
    """Pad on the far side where ceil_mode has one more window, which begins inside of the map."""
    padding = list(window["padding"])
    for i, length in enumerate((1, *x.shape[2:])[-2:]):
        kernel, stride, near = window["kernel"][i], window["stride"][i], padding[i]
        count = -(-(length + 2 * near - kernel) // stride) + 1
        count -= (count - 1) * stride >= length + near
        padding[2 + i] = max((count - 1) * stride + kernel - length - near, near)
    return window | {"padding": tuple(padding)}


def avg_pool(
    b: Builder, x: View, kernel: Any, stride: Any = None, padding: Any = 0, ceil: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> View:  # fmt: skip
    if len(x.dims) == 5:
        y = _in_turn(b, avg_pool, x, kernel, stride, padding, ceil=ceil, count_include_pad=count_include_pad)
        return y if divisor is None else mul(b, y, math.prod(numbers(kernel, 3)) / divisor)
    window = _window(b, x, len(x.dims) - 2, kernel, stride, padding)
    if ceil and _ceiled(x, window) != window:
        near, window = window["padding"], _ceiled(x, window)
        if count_include_pad and divisor is None and any(near):
            y = b.on_maps("avg_pool2d", x, len(x.dims) - 2, window | {"count_include_pad": 1})
            return mul(b, y, _fewer(x, y, window, near))
        count_include_pad = False
    if divisor is not None:
        y = b.on_maps("avg_pool2d", x, len(x.dims) - 2, window | {"count_include_pad": 1})
        return mul(b, y, math.prod(window["kernel"]) / divisor)
    return b.on_maps("avg_pool2d", x, len(x.dims) - 2, window | {"count_include_pad": int(count_include_pad)})


def _fewer(x: View, y: View, window: dict[str, Any], padding: Sequence[int]) -> Tensor:
    """Return by how much the last windows of ceil_mode, beyond the padding, have fewer places, (H', W')."""
    parts: list[Tensor] = []
    for i, (length, count) in enumerate(zip((1, *x.shape[2:])[-2:], (1, *y.shape[2:])[-2:], strict=True)):
        starts = torch.arange(count) * window["stride"][i]
        inside = (starts + window["kernel"][i]).clamp(max=length + 2 * padding[i]) - starts
        parts.append(window["kernel"][i] / inside)
    return parts[0][:, None] * parts[1] if len(x.dims) == 4 else parts[1]


def adaptive_avg_pool(b: Builder, x: View, size: Any) -> View:
    return _adaptive(b, "mean", avg_pool, x, size)


def adaptive_max_pool(b: Builder, x: View, size: Any) -> list[View | None]:
    """Lower to the maxima; their places, which torch gives as well, the file does not hold."""
    return [_adaptive(b, "max", max_pool, x, size), None]


def _adaptive(b: Builder, how: str, pool: Callable[..., View], x: View, size: Any) -> View:
    """A pool whose windows are equal, or else one side after the other."""
    sides = x.shape[2:]
    given = list(size) if isinstance(size, Sequence) else [size] * len(sides)
    wanted = [n if want is None else want for want, n in zip(given, sides, strict=True)]
    if all(n == 1 for n in wanted):
        return reduced(b, how, x, range(2, len(x.dims)), True)
    if not any(n % want for n, want in zip(sides, wanted, strict=True)):
        return pool(b, x, [n // want for n, want in zip(sides, wanted, strict=True)])
    for i, (n, want) in enumerate(zip(sides, wanted, strict=True)):
        ends = [(j * n // want, -(-(j + 1) * n // want)) for j in range(want)]
        x = cat(b, [reduced(b, how, slice_(b, x, 2 + i, *end), [2 + i], True) for end in ends], 2 + i)
    return x


def upsample_nearest(b: Builder, x: View, size: Any = None, factors: Any = None) -> View:
    shape = x.shape[2:]
    scale = [s / n for s, n in zip(size, shape, strict=True)] if size else list(factors)
    if any(factor != int(factor) for factor in scale):
        wanted = [s if size else int(n * f) for s, n, f in zip(size or shape, shape, scale, strict=True)]
        for dim, (length, n) in enumerate(zip(wanted, shape, strict=True)):
            places = torch.arange(n, dtype=torch.float32)[None, None]
            how: dict[str, Any] = {"size": length} if size else {"scale_factor": scale[dim]}
            x = taken(b, x, dim + 2, F.interpolate(places, **how)[0, 0].int().tolist())
        return x
    whole = sizes_of([int(factor) for factor in scale], len(shape), 1)
    return b.on_maps("upsample_nearest", x, len(shape), {"scale": whole})


def upsample_bilinear(b: Builder, x: View, size: Any, align_corners: bool, factors: Any = None) -> View:
    sides = len(x.dims) - 2
    attributes = {
        "size": sizes_of(size, sides, 1) if size else (0, 0),
        "scale": (0.0, 0.0) if size else (1.0, *map(float, factors))[-2:],
        "align_corners": int(align_corners),
    }
    return b.on_maps("resize_bilinear", x, sides, attributes)


def by_sides(resize: Callable[..., Tensor], sides: int) -> Callable[..., View]:
    """Return the rule of an interpolation that is done side by side, each a product with a matrix.

    The matrix is what torch makes of the unit vectors; where each place is another's, it is taken.
    """

    def rule(b: Builder, x: View, size: Any, *more: Any) -> View:
        *aligned, factors = more
        for side in range(sides):
            x = _along(b, x, side + 2, matrix(x.shape[side + 2], side, size, aligned, factors))
        return x

    def matrix(length: int, side: int, size: Any, aligned: Any, factors: Any) -> Tensor:
        # Other sides are of 2: of 1, torch's kernels with antialiasing take another path, and fail.
        shape = [length if i == side else 2 for i in range(sides)]
        units = torch.eye(length).reshape(1, length, *(n if i == side else 1 for i, n in enumerate(shape)))
        wanted = [size[i] if i == side else 2 for i in range(sides)] if size else None
        scales = [factors[i] if i == side else 1.0 for i in range(sides)] if factors else None
        resized = resize(units.expand(1, length, *shape).contiguous(), wanted, *aligned, scales)
        return resized.movedim(2 + side, 2).flatten(3)[0, :, :, 0].T

    return rule


def _along(b: Builder, x: View, dim: int, matrix: Tensor) -> View:
    if bool((matrix.amax(1) == 1).all()) and bool((matrix.sum(1) == 1).all()):
        places = matrix.argmax(1).tolist()
        return x if places == list(range(x.shape[dim])) else taken(b, x, dim, places)
    last = len(x.dims) - 1
    return transpose(b, linear(b, transpose(b, x, dim, last), matrix), dim, last)


def reduction(how: str) -> Callable[..., View]:
    """Return the rule of a mean, a sum, a maximum or a minimum."""
    return lambda b, x, dims=None, keepdim=False, dtype=None: reduced(
        b, how, cast_to(b, x, dtype), dims, keepdim
    )


def reduced(b: Builder, how: str, x: View, dims: Any, keepdim: bool = False) -> View:
    """Reduce over dimensions: over all pixels where they are just that, else they become channels."""
    given = [dims] if isinstance(dims, int) else list(dims) if dims else range(len(x.dims))
    gone = sorted(dim % len(x.dims) for dim in given)
    every = [axis for dim in gone for axis in x.dims[dim]]
    if any(axis.batch for axis in every):
        raise b.refused("operations on each sample by itself", f"a {how} over the batch", "name dimensions")
    repeats = size(axis for axis in every if x.is_repeated(axis)) if how == "sum" else 1
    over = tuple(axis for axis in every if not x.is_repeated(axis))
    x = b.real(x)
    channels = b.shape(x.name)[0]
    if over and set(x.memory[: len(over)]) == set(over) and size(x.memory[len(over) :]) == channels:
        if how == "mean" and len(b.shape(x.name)) == 3:
            name = b.emit("global_avg_pool", [x.name])
        else:
            name = b.emit("reduce_pixels", [x.name], {"how": how})
    elif over:
        over = tuple(axis for axis in x.memory if axis in over) or over
        name, _ = b.pixels(x, over)
        name = b.emit("reduce_channels", [name], {"how": how})
    else:
        name = x.name
    left = tuple(axis for axis in x.memory if axis not in over)
    kept = [() if i in gone else dim for i, dim in enumerate(x.dims) if keepdim or i not in gone]
    y = View(name, left, tuple(kept))
    return mul(b, y, float(repeats)) if repeats != 1 else y


def holds(how: str) -> Any:
    """Return the rule of any, the largest of conditions, or of all, the smallest."""

    def rule(b: Builder, x: View, dims: Any = None, keepdim: bool = False) -> View:
        condition = x if b.given[0].dtype == torch.bool else differs(b, x, 0.0)
        return reduced(b, how, condition, dims, keepdim)

    return rule


def vector_norm(
    b: Builder, x: View, order: float = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    """The root of the sum of powers; order 2 and none, as torch.norm has it, are the same."""
    order = 2 if order is None else order
    if math.isinf(order) or order <= 0:
        how = "max" if order == math.inf else "min"
        if order not in (math.inf, -math.inf):
            raise b.refused("a norm of an order above 0", str(order), "use sums")
        return reduced(b, how, absolute(b, x), dims, keepdim)
    size = x if order % 2 == 0 else absolute(b, x)
    return power(b, reduced(b, "sum", power(b, size, order), dims, keepdim), 1 / order)


def logsumexp(b: Builder, x: View, dims: Any, keepdim: bool = False) -> View:
    most = reduced(b, "max", x, dims, True)
    left = b.alike("log", reduced(b, "sum", b.alike("exp", sub(b, x, most)), dims, keepdim))
    return add(b, left, most if keepdim else reduced(b, "max", x, dims))


def log_softmax(b: Builder, x: View, dim: int, dtype: Any = None) -> View:
    return sub(b, x, logsumexp(b, x, [dim], True))


def running_total(b: Builder, x: View, dim: int, dtype: Any = None) -> View:
    """A product with ones up to each place."""
    last = len(x.dims) - 1
    ones = torch.ones(x.shape[dim], x.shape[dim]).tril()
    return transpose(b, linear(b, transpose(b, x, dim, last), ones), dim, last)


def product(b: Builder, x: View, dim: int, keepdim: bool = False, dtype: Any = None) -> View:
    parts = [slice_(b, x, dim, i, i + 1) for i in range(x.shape[dim])]
    y = reduce(partial(mul, b), parts)
    return y if keepdim else y.with_dim(dim)


def variance(b: Builder, x: View, dims: Any = None, correction: Any = 1, keepdim: bool = False) -> View:
    given = [dims] if isinstance(dims, int) else list(dims) if dims else range(1, len(x.dims))
    apart = power(b, sub(b, x, reduced(b, "mean", x, given, True)), 2)
    count = math.prod(x.shape[dim] for dim in given)
    factor = count / (count - float(1 if correction is None else correction))
    return mul(b, reduced(b, "mean", apart, given, keepdim), factor)


def index(b: Builder, x: View, indices: Sequence[View | Tensor | None]) -> View:
    """Take places by constants, of one dimension or of several at once; or of each sample its own place."""
    given, dim = dict[int, View | Tensor](), 0
    for one in indices:  # a mask of several dimensions stands for the places of each
        mask = isinstance(one, Tensor) and one.dtype == torch.bool
        several = one.nonzero().unbind(1) if isinstance(one, Tensor) and mask else (one,)
        given |= {dim + i: places for i, places in enumerate(several) if places is not None}
        dim += len(several)
    constants = [places for places in given.values() if isinstance(places, Tensor)]
    computed = [places for places in given.values() if isinstance(places, View)]
    of_samples = torch.arange(b.batch.length)
    if [*given] == [0, 1] and computed and constants and torch.equal(constants[0].flatten(), of_samples):
        return _of_samples(b, x, computed[0])
    if computed:
        raise b.refused("indices that are constants, or one of each sample", "others", "use gather")
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
    places = replace(x, dims=(*x.dims, ()))
    return unless_outside(b, equal(b, places, torch.arange(classes)), places, classes)


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
