"""Operators that interpolate between pixels."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.layers import linear, sizes_of
from bitfactor.exporter.operators.shapes import taken, transpose
from bitfactor.exporter.view import View


def upsample_nearest(b: Builder, x: View, size: Any = None, factors: Any = None) -> View:
    shape = x.shape[2:]
    scale = [s / n for s, n in zip(size, shape, strict=True)] if size else list(factors)
    if any(factor != int(factor) for factor in scale):
        wanted = [s if size else int(n * f) for s, n, f in zip(size or shape, shape, scale, strict=True)]
        for dim, (length, n) in enumerate(zip(wanted, shape, strict=True)):
            step = n / length if size else 1 / scale[dim]
            x = taken(b, x, dim + 2, [min(int(i * step), n - 1) for i in range(length)])
        return x
    whole = sizes_of([int(factor) for factor in scale], len(shape), 1)
    return b.of_maps(
        x, b.emit("upsample_nearest", [b.maps(b.real(x), len(shape))], {"scale": whole}), len(shape)
    )


def upsample_bilinear(b: Builder, x: View, size: Any, align_corners: bool, factors: Any = None) -> View:
    sides = len(x.dims) - 2
    attributes = {
        "size": sizes_of(size, sides, 1) if size else (0, 0),
        "scale": (0.0, 0.0) if size else (1.0, *map(float, factors))[-2:],
        "align_corners": int(align_corners),
    }
    return b.of_maps(x, b.emit("resize_bilinear", [b.maps(b.real(x), sides)], attributes), sides)


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
