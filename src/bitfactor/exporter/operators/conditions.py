"""Comparisons of computed values, and what is chosen by them. A condition is 1 where it holds, else 0."""

from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.pointwise import NEVER, Constant, absolute, add, clip, mul, sub
from bitfactor.exporter.view import View

Value = View | Constant


def _positive(b: Builder, x: View) -> View:
    """1 where x > 0, else 0. Of two normal float32 that are not the same, the difference is not 0."""
    return clip(b, enlarged(b, x), 0, 1)


def enlarged(b: Builder, x: View) -> View:
    """Normal numbers beyond -1 and 1, finite ones as all are."""
    return mul(b, clip(b, x, -1, 1), 2.0**127)


def above(b: Builder, x: Value, y: Value) -> View:
    return _positive(b, sub(b, x, y))


def below(b: Builder, x: Value, y: Value) -> View:
    return above(b, y, x)


def at_most(b: Builder, x: Value, y: Value) -> View:
    return negated(b, above(b, x, y))


def at_least(b: Builder, x: Value, y: Value) -> View:
    return negated(b, above(b, y, x))


def differs(b: Builder, x: Value, y: Value) -> View:
    return _positive(b, absolute(b, sub(b, x, y)))


def equal(b: Builder, x: Value, y: Value) -> View:
    return negated(b, differs(b, x, y))


def negated(b: Builder, condition: View) -> View:
    return sub(b, 1.0, condition)


def truth(b: Builder, x: Value) -> Value:
    """1 where a number is not 0."""
    return x.bool() if isinstance(x, Tensor) else differs(b, x, 0.0) if isinstance(x, View) else bool(x)


def both(b: Builder, x: Value, y: Value) -> View:
    return mul(b, x, y)


def either(b: Builder, x: Value, y: Value) -> View:
    return clip(b, add(b, x, y), 0, 1)


def of_truth(combine: Any) -> Any:
    """Return the rule that combines what values are as conditions."""
    return lambda b, *values: combine(b, *(truth(b, x) for x in values))


def where(b: Builder, condition: View | Tensor, x: Value, y: Value) -> View:
    """Choose: c x + (1 - c) y. By a condition that depends on the input even beside what is not finite."""
    chosen: View | Tensor
    others: View | Tensor
    finite = isinstance(condition, View)
    if isinstance(condition, View):
        chosen, others = condition, negated(b, condition)
    else:
        chosen, others = condition.float(), 1 - condition.float()

    def weighted(value: Value, weight: View | Tensor) -> Value:
        if isinstance(value, View):
            return mul(b, clip(b, value) if finite else value, weight)
        value = torch.as_tensor(value).clamp(min=NEVER)
        return mul(b, weight, value) if isinstance(weight, View) else value * weight

    return add(b, weighted(x, chosen), weighted(y, others))


def masked_fill(b: Builder, x: Value, mask: View | Tensor, value: Value) -> View:
    return where(b, mask, value, x)
