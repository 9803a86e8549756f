"""Products of two computed values, and what is made of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.convolutions import linear
from bitfactor.exporter.operators.functions import NEVER, above, add, mul, negated, softmax, sub
from bitfactor.exporter.operators.pooling import reduced
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
    if isinstance(mask, View) and b.given[-1].dtype == torch.bool:
        mask = mul(b, sub(b, 1.0, mask), NEVER)
    if mask is None:
        return matmul(b, softmax(b, scores, -1), value)
    attended = matmul(b, softmax(b, add(b, scores, mask), -1), value)
    return _unless_all_hidden(b, attended, mask)


def _unless_all_hidden(b: Builder, attended: View, mask: View | Tensor) -> View:
    """Set to 0, as torch has it, what a mask hides everything of, by NEVER or a sum of up to four."""
    if isinstance(mask, Tensor):
        seen = (mask != -torch.inf).any(-1, keepdim=True)
        return attended if bool(seen.all()) else mul(b, attended, seen)
    most = reduced(b, "max", mask, [-1], True)
    hidden = mul(b, above(b, 0.99 * NEVER, most), above(b, most, 4.5 * NEVER))
    return mul(b, attended, negated(b, hidden))


def _repeated(x: View, count: int) -> View:
    return replace(x, dims=(x.dims[0], (*x.dims[1], Axis(count)), *x.dims[2:]))


def addmm(b: Builder, bias: Any, x: View, y: Any, *, beta: float = 1, alpha: float = 1) -> View:
    product = matmul(b, x, y)
    product = mul(b, product, alpha) if alpha != 1 else product
    return add(b, product, bias, beta)


def bilinear(b: Builder, x: View, y: View, weight: Tensor, bias: Tensor | None = None) -> View:
    """(..., I) and (..., J) with weight (O, I, J): the sum of x weight y, (..., O)."""
    outputs, of_x, of_y = weight.shape
    rows = linear(b, x, weight.transpose(1, 2).reshape(-1, of_x))
    parts = b.reshaped(rows, (*x.shape[:-1], outputs, of_y))
    product = reduced(b, "sum", mul(b, parts, replace(y, dims=(*y.dims[:-1], (), y.dims[-1]))), [-1], False)
    return product if bias is None else add(b, product, bias)


def einsum(b: Builder, equation: str, operands: Sequence[View | Tensor], path: Any = None) -> View:
    """Products of two after each other, each less the letters that nothing else needs."""
    inputs, output = _letters(b, equation, operands)
    views = [v if isinstance(v, View) else b.stored(v) for v in operands]
    (x, *others), (letters, *rest) = views, inputs
    for i, (y, own) in enumerate(zip(others, rest, strict=True)):
        needed = {*output, *(c for later in rest[i + 1 :] for c in later)}
        kept = "".join(c for c in dict.fromkeys(letters + own) if c in needed)
        x, letters = _pair(b, x, letters, y, own, kept), kept
    over = [i for i, c in enumerate(letters) if c not in output]
    x = reduced(b, "sum", x, over, False) if over else x
    left = [c for c in letters if c in output]
    return replace(x, dims=tuple(x.dims[left.index(c)] for c in output))


_MOST_DOTS = 8  # dimensions that dots stand for


def _letters(b: Builder, equation: str, operands: Sequence[View | Tensor]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; dots stand for capital ones."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    inputs, free = left.split(","), "".join(c for c in ascii_uppercase if c not in equation)[:_MOST_DOTS]
    most = 0
    for i, (own, x) in enumerate(zip(inputs, operands, strict=True)):
        count = len(x.shape) - len(own.replace("...", ""))
        inputs[i], most = own.replace("...", free[len(free) - count :]), max(most, count)
    dots, named = free[len(free) - most :], set("".join(inputs)) - {*free}
    once = sorted(c for c in named if "".join(inputs).count(c) == 1)
    output = output.replace("...", dots) if arrow else dots + "".join(once)
    if any(len(set(own)) < len(own) for own in (*inputs, output)):
        raise b.refused("einsum whose operands have each letter once", equation, "use diagonal")
    return inputs, output


def _pair(b: Builder, x: View, first: str, y: View, second: str, output: str) -> View:
    """What both have and the result has not is summed, what all have is the batch."""
    alone = [i for i, c in enumerate(first) if c not in second + output]
    if alone:
        x = reduced(b, "sum", x, alone, False)
        first = "".join(c for c in first if c in second + output)
    if any(c not in first + output for c in second):
        return _pair(b, y, second, x, first, output)
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
