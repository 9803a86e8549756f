"""Comparisons of computed values, and what is chosen by them. A condition is 1 where it holds, else 0."""

from typing import Any

import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.operators.pointwise import Constant, absolute, add, clip, finite, mul, relu, sub
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


def _not_negative(b: Builder, x: View) -> View:
    """1 where x >= 0, else 0, also where it is NaN, of which clip makes its lower bound."""
    return clip(b, add(b, enlarged(b, x), 1.0), 0, 1)


def at_most(b: Builder, x: Value, y: Value) -> View:
    return at_least(b, y, x)


def at_least(b: Builder, x: Value, y: Value) -> View:
    return _not_negative(b, sub(b, x, y))


def equal(b: Builder, x: Value, y: Value) -> View:
    return _not_negative(b, mul(b, absolute(b, sub(b, x, y)), -1.0))


def differs(b: Builder, x: Value, y: Value) -> View:
    return no_number(b, x) if isinstance(x, View) and x == y else negated(b, equal(b, x, y))


def negated(b: Builder, condition: View) -> View:
    return sub(b, 1.0, condition)


def no_number(b: Builder, x: View) -> View:
    """1 where it is NaN, of which clip makes its lower bound, and relu 0."""
    return sub(b, clip(b, sub(b, relu(b, x), relu(b, mul(b, x, -1.0))), -1, 1), clip(b, x, -1, 1))


def unless_outside(b: Builder, y: View, places: View, count: int) -> View:
    """Return y, but NaN where a place is none of `count`: there torch has no result."""
    beyond = clip(b, absolute(b, sub(b, places, clip(b, places, 0, count - 1))), 0, 1)
    return add(b, y, mul(b, b.alike("reciprocal", negated(b, beyond)), 0.0))


def truth(b: Builder, x: Value) -> Value:
    """1 where a number is not 0."""
    return x.bool() if isinstance(x, Tensor) else differs(b, x, 0.0) if isinstance(x, View) else bool(x)


def both(b: Builder, x: Value, y: Value) -> View:
    return mul(b, x, y)


def either(b: Builder, x: Value, y: Value) -> View:
    return clip(b, add(b, x, y), 0, 1)


def of_bits(combine: Any) -> Any:
    """Return the rule that combines conditions, as torch's &, | and ~ do beside the bits of integers."""

    def rule(b: Builder, *values: Value) -> View:
        if any(x.dtype != torch.bool for x in b.given):
            raise b.refused("bitwise operations on conditions", "integers", "compare them with 0")
        found: View = combine(b, *values)
        return found

    return rule


def of_truth(combine: Any) -> Any:
    """Return the rule that combines what values are as conditions."""
    return lambda b, *values: combine(b, *(truth(b, x) for x in values))


def where(b: Builder, condition: View | Tensor, x: Value, y: Value) -> View:
    """Choose: c x + (1 - c) y. By a condition that depends on the input even beside what is not finite."""
    chosen: View | Tensor
    others: View | Tensor
    if isinstance(condition, View):
        chosen, others = condition, negated(b, condition)
    else:
        chosen, others = condition.float(), 1 - condition.float()

    def weighted(value: Value, weight: View | Tensor) -> Value:
        if isinstance(value, View):
            return mul(b, clip(b, value) if isinstance(condition, View) else value, weight)
        value = finite(torch.as_tensor(value))
        return mul(b, weight, value) if isinstance(weight, View) else value * weight

    return add(b, weighted(x, chosen), weighted(y, others))


def masked_fill(b: Builder, x: Value, mask: View | Tensor, value: Value) -> View:
    return where(b, mask, value, x)
