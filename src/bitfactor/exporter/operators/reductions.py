"""Operators that sum up, or otherwise reduce, over dimensions."""

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.conditions import differs
from bitfactor.exporter.operators.functions import power
from bitfactor.exporter.operators.layers import linear
from bitfactor.exporter.operators.pointwise import absolute, add, mul, sub
from bitfactor.exporter.operators.shapes import slice_, transpose
from bitfactor.exporter.view import View, size


def mean(b: Builder, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    return reduced(b, "mean", x, dims, keepdim)


def total(b: Builder, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> View:
    return reduced(b, "sum", x, dims, keepdim)


def largest(b: Builder, x: View, dims: Any = None, keepdim: bool = False) -> View:
    return reduced(b, "max", x, dims, keepdim)


def smallest(b: Builder, x: View, dims: Any = None, keepdim: bool = False) -> View:
    return reduced(b, "min", x, dims, keepdim)


def reduced(b: Builder, how: str, x: View, dims: Any, keepdim: bool) -> View:
    """Reduce over dimensions: over all pixels where they are just that, else they become channels."""
    given = [dims] if isinstance(dims, int) else list(dims) if dims else range(len(x.dims))
    numbers = sorted(dim % len(x.dims) for dim in given)
    every = [axis for number in numbers for axis in x.dims[number]]
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
    kept = [() if i in numbers else dim for i, dim in enumerate(x.dims) if keepdim or i not in numbers]
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
    return power(b, total(b, power(b, size, order), dims, keepdim), 1 / order)


def logsumexp(b: Builder, x: View, dims: Any, keepdim: bool = False) -> View:
    most = largest(b, x, dims, True)
    left = b.alike("log", total(b, b.alike("exp", sub(b, x, most)), dims, keepdim))
    return add(b, left, most if keepdim else largest(b, x, dims))


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
    apart = power(b, sub(b, x, mean(b, x, given, True)), 2)
    count = math.prod(x.shape[dim] for dim in given)
    factor = count / (count - float(1 if correction is None else correction))
    return mul(b, mean(b, apart, given, keepdim), factor)


def variance_unbiased(b: Builder, x: View, dims: Any, unbiased: bool = True, keepdim: bool = False) -> View:
    return variance(b, x, dims, int(unbiased), keepdim)


def rms_norm(
    b: Builder, x: View, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> View:
    dims = list(range(len(x.dims) - len(shape), len(x.dims)))
    square = mean(b, mul(b, x, x), dims, True)
    factor = power(b, add(b, square, torch.finfo(torch.float32).eps if eps is None else eps), -0.5)
    y = mul(b, x, factor)
    return y if weight is None else mul(b, y, weight)
