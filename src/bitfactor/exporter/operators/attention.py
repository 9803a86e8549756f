"""Products of two computed values, and what is made of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.layers import linear
from bitfactor.exporter.operators.pointwise import add, mul, softmax
from bitfactor.exporter.operators.shapes import transpose
from bitfactor.exporter.view import Axes, Axis, View, common


def matmul(b: Builder, x: View | Tensor, y: View | Tensor) -> View:
    """(..., M, K) times (..., K, N), or a vector (K,) in place of one; a constant matrix is a layer."""
    if isinstance(y, Tensor) and isinstance(x, View):
        if y.ndim <= 2:
            product = linear(b, x, y.reshape(len(y), -1).T)
            return product if y.ndim == 2 else product.with_dim(-1)
        y = b.stored(y)
    if isinstance(x, Tensor) and isinstance(y, View):
        if x.ndim == 2 and len(y.dims) > 1:
            return transpose(b, linear(b, transpose(b, y, -1, -2), x), -1, -2)
        x = b.stored(x)
    assert isinstance(x, View)
    assert isinstance(y, View)
    if len(x.dims) == 1:
        return matmul(b, replace(x, dims=((), *x.dims)), y).with_dim(-2)
    if len(y.dims) == 1:
        return matmul(b, x, replace(y, dims=(*y.dims, ()))).with_dim(-1)
    return _product(b, b.real(x), b.real(y))


def _product(b: Builder, x: View, y: View) -> View:
    """The batch of both is `groups` and maps of the operation; what only one has is rows or columns."""
    y = y.apart()
    count = max(len(x.dims), len(y.dims))
    (*outer_x, m, k), (*outer_y, k_y, n) = (((),) * (count - len(v.dims)) + v.dims for v in (x, y))
    found = common(replace(x, dims=(*outer_x, k, m, ())), replace(y, dims=(*outer_y, k_y, (), n)))
    if found is None:
        raise b.refused("matrices that fit", f"{x.shape} and {y.shape}", "reshape one of them")
    x, y, pairs = found
    y = y.with_axes(pairs)
    *outer_x, k, m, _ = x.dims
    *outer_y, _, _, n = y.dims
    outer = [a or c for a, c in zip(outer_x, outer_y, strict=True)]
    every = [axis for dim in outer for axis in dim if not axis.batch]
    shared = tuple(axis for axis in every if axis in x.memory and axis in y.memory)
    x, groups, maps, k, rows = _left(b, x, shared, k)
    name_x = b.arranged(x, maps, rows, (*groups, *k))
    name_y, columns, transposed = _right(b, y, groups, maps, k)
    attributes = {"groups": math.prod(axis.length for axis in groups), "transposed": int(transposed)}
    name = b.emit("matmul", [name_x, name_y], attributes)
    return View(name, (*maps, *rows, *groups, *columns), (*outer, m, n))


def _left(b: Builder, x: View, shared: Axes, k: Axes) -> tuple[View, Axes, Axes, Axes, Axes]:
    """Return x, and groups, maps, summed axes and rows so that it lies as (maps, rows, groups, summed)."""
    k = tuple(axis for axis in x.memory if axis in k) + tuple(axis for axis in k if axis not in x.memory)
    rest = [axis for axis in x.memory if axis not in k]
    groups: list[Axis] = []
    while rest and rest[-1] in shared:
        groups.insert(0, rest.pop())
    rows = tuple(axis for axis in rest if axis not in shared)
    maps = tuple(axis for axis in rest if axis in shared)
    if not rows:
        maps, groups = (*maps, *groups), []
    return x, tuple(groups), maps, k, rows


def _right(b: Builder, y: View, groups: Axes, maps: Axes, k: Axes) -> tuple[str, Axes, bool]:
    """Return the value as (maps, columns, groups, summed), or (maps, summed, groups, columns)."""
    columns = tuple(axis for axis in y.memory if axis not in (*groups, *maps, *k))
    by_rows, by_columns = (*maps, *columns, *groups, *k), (*maps, *k, *groups, *columns)
    transposed = y.memory == by_rows or (y.memory != by_columns and y.memory[-1:] == k[-1:])
    if transposed:
        return b.arranged(y, maps, columns, (*groups, *k)), columns, True
    return b.arranged(y, maps, k, (*groups, *columns)), columns, False


def attention(
    b: Builder, query: View | Tensor, key: View | Tensor, value: View | Tensor,
    mask: View | Tensor | None = None, dropout: float = 0.0, causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> View:  # fmt: skip
    """softmax(query keyᵀ scale + mask) value."""
    if dropout:
        raise b.refused("attention without dropout", str(dropout), "call model.eval()")
    query, key, value = (x if isinstance(x, View) else b.stored(x) for x in (query, key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        count = query.shape[1] // key.shape[1]
        key, value = (_repeated(x, count) for x in (key, value))
    scores = matmul(b, mul(b, query, factor), transpose(b, key, -1, -2))
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    if mask is not None:
        scores = add(b, scores, mask)
    return matmul(b, softmax(b, scores, -1), value)


def _repeated(x: View, count: int) -> View:
    return replace(x, dims=(x.dims[0], (*x.dims[1], Axis(count)), *x.dims[2:]))


def addmm(b: Builder, bias: Any, x: View, y: Any, *, beta: float = 1, alpha: float = 1) -> View:
    product = matmul(b, x, y)
    product = mul(b, product, alpha) if alpha != 1 else product
    return add(b, product, bias, beta)


def einsum(b: Builder, equation: str, operands: Sequence[View | Tensor], path: Any = None) -> View:
    """A product of two: what both have and the result has not is summed, what all have is the batch."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    first, _, second = inputs.partition(",")
    if len(operands) != 2 or "." in equation or not output or len(set(first)) < len(first):
        raise b.refused("einsum of two operands with all its letters", equation, "use matmul")
    x, y = (v if isinstance(v, View) else b.stored(v) for v in operands)
    batch = [c for c in first if c in second and c in output]
    summed = [c for c in first if c in second and c not in output]
    rows, columns = ([c for c in own if c not in batch + summed] for own in (first, second))

    def merged(view: View, letters: str, *groups: list[str]) -> View:
        dims = [tuple(a for c in group for a in view.dims[letters.index(c)]) for group in groups]
        return replace(view, dims=(*(view.dims[letters.index(c)] for c in batch), *dims))

    product = matmul(b, merged(x, first, rows, summed), merged(y, second, summed, columns))
    sizes = dict(zip(first, x.shape, strict=True)) | dict(zip(second, y.shape, strict=True))
    order = [*batch, *rows, *columns]
    apart = b.reshaped(product, [sizes[c] for c in order])
    return replace(apart, dims=tuple(apart.dims[order.index(c)] for c in output))
