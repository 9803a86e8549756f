"""Operators that move numbers and change none. The batch dimension stays where it is."""

from collections.abc import Sequence
from typing import Any

from bitfactor.exporter.builder import Builder


def same(b: Builder, x: str, *_: Any, **__: Any) -> str:
    """Lower what changes nothing here; one number per channel may be a factor without being spread first."""
    return x


def reshape(b: Builder, x: str, *_: Any) -> str:
    """Lower any operator that reads the numbers in the same order; torch has worked out the shape."""
    x = b.as_torch(x)
    wanted = b.result_shape()
    if wanted == b.shape(x):
        return x
    if len(wanted) == 1:
        return b.emit("flatten", [x])
    return b.emit("reshape", [x], {"shape": wanted})


def cat(b: Builder, values: Sequence[str], dim: int = 0) -> str:
    if b.axis(values[0], dim) == 0:
        return b.emit("concat", b.alike(*values))
    # Only channels are put side by side, so the dimension trades places with them.
    swapped = [transpose(b, x, 1, dim) for x in values]
    return _swapped(b, b.emit("concat", swapped), 0, b.axis(values[0], dim))


def stack(b: Builder, values: Sequence[str], dim: int = 0) -> str:
    dim %= len(b.torch_shape(values[0])) + 2
    if dim == 0:
        raise b.refused(
            "operations on each sample by itself", "a stack over the batch", "use another dimension"
        )
    whole = [b.as_torch(x) for x in values]
    shape = b.shape(whole[0])
    single = {"shape": (*shape[: dim - 1], 1, *shape[dim - 1 :])}
    return cat(b, [b.emit("reshape", [x], single) for x in whole], dim)


def pixel_shuffle(b: Builder, x: str, factor: int) -> str:
    x = b.as_torch(x)
    channels, height, width = b.shape(x)
    parts = b.emit("reshape", [x], {"shape": (channels // factor**2, factor, factor, height, width)})
    apart = b.emit("permute", [parts], {"order": (0, 3, 1, 4, 2)})
    return b.emit("reshape", [apart], {"shape": b.result_shape()})


def permute(b: Builder, x: str, dims: Sequence[int]) -> str:
    if dims[0] != 0:
        raise b.refused("dimension 0, the batch, to stay first", f"permute{tuple(dims)}", "leave it there")
    return b.emit("permute", [b.as_torch(x)], {"order": tuple(b.axis(x, dim) for dim in dims[1:])})


def transpose(b: Builder, x: str, first: int, second: int) -> str:
    return _swapped(b, b.as_torch(x), b.axis(x, first), b.axis(x, second))


def _swapped(b: Builder, x: str, first: int, second: int) -> str:
    order = list(range(len(b.shape(x))))
    order[first], order[second] = second, first
    return b.emit("permute", [x], {"order": tuple(order)})


def slice_(
    b: Builder, x: str, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> str:
    axis, x = b.axis(x, dim), b.as_torch(x)
    size = b.shape(x)[axis]
    first, last, _ = slice(start, stop).indices(size)
    if (first, last, step) == (0, size, 1):
        return x
    return b.emit("slice", [x], {"range": (axis, first, last, step)})


def select(b: Builder, x: str, dim: int, index: int) -> str:
    axis, x = b.axis(x, dim), b.as_torch(x)
    shape = b.shape(x)
    if len(shape) == 1:
        raise b.refused("at least one number per sample in a dimension", "a single number", "slice instead")
    first = index % shape[axis]
    taken = b.emit("slice", [x], {"range": (axis, first, first + 1, 1)})
    rest = (*shape[:axis], *shape[axis + 1 :])
    return b.emit("flatten", [taken]) if len(rest) == 1 else b.emit("reshape", [taken], {"shape": rest})


def split_with_sizes(b: Builder, x: str, sizes: Sequence[int], dim: int = 0) -> list[str]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice_(b, x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True)]


def split(b: Builder, x: str, size: int, dim: int = 0) -> list[str]:
    total = b.torch_shape(x)[b.axis(x, dim)]
    return split_with_sizes(b, x, [min(size, total - start) for start in range(0, total, size)], dim)


def chunk(b: Builder, x: str, count: int, dim: int = 0) -> list[str]:
    return split(b, x, -(-b.torch_shape(x)[b.axis(x, dim)] // count), dim)
