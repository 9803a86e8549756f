"""Operators that look at one number at a time, alone or with its partner; functions made of others.

A condition, of comparisons of computed values, is 1 where it holds, else 0.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitfactor.exporter.builder import Builder
from bitfactor.exporter.view import View

Value = View | Tensor | float
_LARGEST = float(np.finfo(np.float32).max)
NEVER = -(2.0**100)  # in place of -inf: no sum brings it back, and no model has it as a number of its own
_FINITE = 1e37  # numbers beyond it are no further apart, so that their sums are finite


def finite(constant: Tensor) -> Tensor:
    """Return numbers for what is infinite, and so far from 0 that sums might be."""
    if not constant.is_floating_point():
        return constant
    return torch.nan_to_num(constant, torch.nan, -NEVER, NEVER).clamp(-_FINITE, _FINITE)


def relu(b: Builder, x: View) -> View:
    return b.alike("relu", x)


def prelu(b: Builder, x: View, slope: Tensor) -> View:
    slope = slope.reshape(-1, *[1] * (len(x.dims) - 2))
    x, slopes = b.constant(x, slope)
    if slopes.ndim > 1:  # channels are not side by side
        return add(b, relu(b, x), mul(b, slope, sub(b, x, relu(b, x))))
    return b.alike("prelu", x, slope=slopes)


def leaky_relu(b: Builder, x: View, slope: float = 0.01) -> View:
    return b.alike("prelu", x, slope=np.full(b.shape(x.name)[0], slope, np.float32))


def absolute(b: Builder, x: View) -> View:
    return leaky_relu(b, x, -1.0)


def clip(b: Builder, x: View, lower: float | None = None, upper: float | None = None) -> View:
    bounds = {
        "lower": float(np.float32(-_LARGEST if lower is None else lower)),
        "upper": float(np.float32(_LARGEST if upper is None else upper)),
    }
    return b.alike("clip", x, bounds)


def sigmoid(b: Builder, x: View) -> View:
    return b.alike("sigmoid", x)


def hardsigmoid(b: Builder, x: View) -> View:
    return clip(b, add(b, mul(b, x, 1 / 6), 0.5), 0, 1)


def hardswish(b: Builder, x: View) -> View:
    return mul(b, x, hardsigmoid(b, x))


def tanh(b: Builder, x: View) -> View:
    """2 sigmoid(2 x) - 1."""
    return sub(b, mul(b, sigmoid(b, mul(b, x, 2.0)), 2.0), 1.0)


def silu(b: Builder, x: View) -> View:
    return mul(b, x, sigmoid(b, x))


def glu(b: Builder, x: View, gate: View) -> View:
    return mul(b, x, sigmoid(b, gate))


def softmax(b: Builder, x: View, dim: int, dtype: torch.dtype | None = None) -> View:
    name, view = b.pixels(b.real(x), x.dim(dim))
    return view.named(b.emit("softmax", [name]))


def add(b: Builder, x: Value, y: Value, alpha: float = 1) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "add", x, mul(b, y, alpha) if alpha != 1 else y)
    if isinstance(x, View):
        return _shifted(b, x, torch.as_tensor(y) * alpha)
    assert isinstance(y, View)
    return _shifted(b, mul(b, y, alpha) if alpha != 1 else y, torch.as_tensor(x))


def sub(b: Builder, x: Value, y: Value, alpha: float = 1) -> View:
    return add(b, x, y, -alpha)


def _joined(b: Builder, op: str, x: View, y: View) -> View:
    """The larger comes first: the second may have one number for each channel."""
    first, second = sorted(b.together(x, y), key=lambda view: -int(np.prod(b.shape(view.name))))
    return first.named(b.emit(op, [first.name, second.name]))


def _shifted(b: Builder, x: View, constant: Tensor) -> View:
    x, shift = b.constant(b.real(x), finite(constant))
    channels = b.shape(x.name)[0]
    return b.alike("affine", x, scale=np.ones(channels, np.float32), shift=shift)


def mul(b: Builder, x: Value, y: Value) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _joined(b, "multiply", x, y)
    value, constant = (x, y) if isinstance(x, View) else (y, x)
    assert isinstance(value, View)
    value, factor = b.constant(value, torch.as_tensor(constant))
    return value.named(b.emit("scale", [value.name], alpha=factor))


def div(b: Builder, x: Value, y: Value) -> View:
    if isinstance(y, View):
        return mul(b, x, b.alike("reciprocal", y))
    return mul(b, x, 1 / torch.as_tensor(y, dtype=torch.float32))


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
    """1 where x >= 0, else 0. Where x is NaN it is 0: clip makes its lower bound of it."""
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
    """1 where it is NaN: clip makes its lower bound of it, and relu 0."""
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


_EXACT = 64  # powers up to it are products
_HALVES = 2.0**22  # beyond, float32 has no fractions but 1/2
_TO_INTEGER = 1.5 * 2.0**23  # adding it rounds to an integer


def elu(b: Builder, x: View, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> View:
    """Scale (relu(x) + alpha (exp(min(input_scale x, 0)) - 1))."""
    below = sub(b, b.alike("exp", clip(b, mul(b, x, input_scale), None, 0)), 1.0)
    return mul(b, add(b, relu(b, x), mul(b, below, alpha)), scale)


def selu(b: Builder, x: View) -> View:
    return elu(b, x, 1.6732632423543772, 1.0507009873554805)


def celu(b: Builder, x: View, alpha: float = 1) -> View:
    return elu(b, x, alpha, 1, 1 / alpha)


def softplus(b: Builder, x: View, beta: float = 1, threshold: float = 20) -> View:
    """log(1 + exp(beta x)) / beta, as relu(x) + log(1 + exp(-abs(beta x))) / beta; x above the threshold."""
    far = b.alike("exp", mul(b, absolute(b, x), -beta))
    y = add(b, relu(b, x), mul(b, b.alike("log", add(b, far, 1.0)), 1 / beta))
    # Where both are the same in float32, nothing is chosen.
    return y if threshold >= 16 else where(b, above(b, x, threshold / beta), x, y)


def threshold(b: Builder, x: View, limit: float, value: float) -> View:
    return where(b, above(b, x, limit), x, value)


def hardshrink(b: Builder, x: View, bound: float = 0.5) -> View:
    return mul(b, x, above(b, absolute(b, x), bound))


def softshrink(b: Builder, x: View, bound: float = 0.5) -> View:
    return sub(b, x, clip(b, x, -bound, bound))


def rrelu(b: Builder, x: View, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> View:
    """As in evaluation, where the slope is the mean of both."""
    return sub(b, relu(b, x), mul(b, relu(b, mul(b, x, -1.0)), (lower + upper) / 2))


def gelu(b: Builder, x: View, approximate: str = "none") -> View:
    """Exact, or by tanh: x (1 + tanh(z)) / 2 = x sigmoid(2 z)."""
    if approximate != "tanh":
        return b.alike("gelu", x)
    z = mul(b, add(b, x, mul(b, power(b, x, 3), 0.044715)), math.sqrt(2 / math.pi))
    return mul(b, x, sigmoid(b, mul(b, z, 2.0)))


def power(b: Builder, x: View, exponent: float) -> View:
    """Products, and a root for what ends in a half; other exponents by log(x), of positive x."""
    whole = int(exponent // 1)
    if exponent in (1, -1):
        return x if exponent == 1 else b.alike("reciprocal", x)
    if exponent == 0:
        return add(b, mul(b, x, 0.0), 1.0)
    if exponent < 0:
        return b.alike("reciprocal", power(b, x, -exponent))
    if exponent - whole == 0.5 and whole <= _EXACT:
        root = b.alike("sqrt", x)
        return mul(b, power(b, x, whole), root) if whole else root
    if exponent != whole or whole > _EXACT:
        return b.alike("exp", mul(b, b.alike("log", x), exponent))
    square = power(b, mul(b, x, x), whole // 2)
    return mul(b, square, x) if whole % 2 else square


def power_of(b: Builder, x: Value, exponent: Value) -> View:
    """Exp(exponent log(x)), of positive x."""
    if isinstance(exponent, View):
        logarithm = b.alike("log", x) if isinstance(x, View) else torch.as_tensor(x).float().log()
        return b.alike("exp", mul(b, exponent, logarithm))
    assert isinstance(x, View)
    one = torch.as_tensor(exponent)
    if one.numel() == 1:
        return power(b, x, one.item())
    return b.alike("exp", mul(b, b.alike("log", x), one))


def logarithm(base: float) -> Any:
    """Return the rule of a logarithm."""
    return lambda b, x: mul(b, b.alike("log", x), 1 / math.log(base))


def erf(b: Builder, x: View) -> View:
    """From gelu(z) = z (1 + erf(z / sqrt(2))) / 2; near 0, where that is 0 / 0, erf(x) = 2 x / sqrt(pi)."""
    size = absolute(b, x)
    far = add(b, relu(b, sub(b, size, 1e-3)), 1e-3)  # no closer to 0
    z = mul(b, far, math.sqrt(2))
    y = sub(b, div(b, mul(b, b.alike("gelu", z), 2.0), z), 1.0)
    return where(b, above(b, size, 1e-3), mul(b, y, sign(b, x)), mul(b, x, 2 / math.sqrt(math.pi)))


def sign(b: Builder, x: View) -> View:
    """-1, 0 or 1; subnormal numbers lie between."""
    return clip(b, enlarged(b, x), -1, 1)


def rounded(b: Builder, x: View, decimals: int = 0) -> View:
    """To the next integer, a half to the even one; beyond 2^22 a half stays."""
    if decimals:
        raise b.refused("rounding to integers", f"{decimals} decimals", "scale before and after")
    inside = clip(b, x, -_HALVES, _HALVES)
    whole = sub(b, add(b, inside, _TO_INTEGER), _TO_INTEGER)
    return add(b, whole, sub(b, x, inside))


def floor(b: Builder, x: View) -> View:
    whole = rounded(b, x)
    return sub(b, whole, above(b, whole, x))


def ceil(b: Builder, x: View) -> View:
    whole = rounded(b, x)
    return add(b, whole, above(b, x, whole))


def truncated(b: Builder, x: View) -> View:
    return mul(b, floor(b, absolute(b, x)), sign(b, x))


def quotient(b: Builder, x: View, y: Value) -> tuple[View, View]:
    """Return floor(x / y), and x less so many y, from 0 to y; y is a constant above 0."""
    if isinstance(y, View) or not bool((torch.as_tensor(y) > 0).all()):
        raise b.refused("whole parts of a division by constants above 0", "others", "divide, then floor")
    whole = floor(b, div(b, x, y))
    rest = sub(b, x, mul(b, whole, y))
    # The quotient of two floats may be rounded across an integer.
    more = sub(b, at_least(b, rest, y), above(b, 0.0, rest))
    return add(b, whole, more), sub(b, rest, mul(b, more, y))


def divided(b: Builder, x: Value, y: Value, rounding_mode: Any = None) -> View:
    if rounding_mode is None:
        return div(b, x, y)
    assert isinstance(x, View)
    if rounding_mode == "floor":
        return quotient(b, x, y)[0]
    return mul(b, quotient(b, absolute(b, x), y)[0], sign(b, x))


def fmod(b: Builder, x: View, y: Value) -> View:
    """What is left of the division, with the sign of x."""
    return mul(b, quotient(b, absolute(b, x), y)[1], sign(b, x))


def hyperbolic(other: float) -> Any:
    """Return the rule of cosh, (exp(x) + exp(-x)) / 2, or with -1 that of sinh."""

    def rule(b: Builder, x: View) -> View:
        falling = mul(b, b.alike("exp", mul(b, x, -1.0)), other / 2)
        return add(b, mul(b, b.alike("exp", x), 0.5), falling)

    return rule


def cosine(b: Builder, x: View) -> View:
    """sin(pi / 2 - abs(r))."""
    return _sine(b, sub(b, math.pi / 2, absolute(b, _without_turns(b, x))))


def sine(b: Builder, x: View) -> View:
    return _sine(b, _without_turns(b, x))


def _without_turns(b: Builder, x: View) -> View:
    """Return what is left of x, from -pi to pi.

    Whole turns, up to 2^22 of them, in two parts of 11 bits, times parts of 12 bits of a turn are exact.
    """
    turns = rounded(b, mul(b, x, 1 / math.tau))
    thousands = mul(b, rounded(b, mul(b, turns, 2.0**-11)), 2.0**11)
    r, left = x, math.tau
    for bits in (9, 21, 53):
        part = math.floor(left * 2.0**bits) / 2.0**bits
        for some in (thousands, sub(b, turns, thousands)):
            r = sub(b, r, mul(b, some, part))
        left -= part
    return clip(b, r, -4, 4)  # of more turns nothing is left that is known


def _sine(b: Builder, r: View) -> View:
    """The terms up to r^15, from -pi to pi."""
    square, y = mul(b, r, r), None
    for n in range(7, 0, -1):
        term = (-1) ** n / math.factorial(2 * n + 1)
        y = mul(b, square, term) if y is None else mul(b, square, add(b, y, term))
    assert y is not None
    return mul(b, r, add(b, y, 1.0))


def best_of(how: str) -> Any:
    """Return the rule of the larger or smaller of two values: the one that is above, or below, the other."""

    def rule(b: Builder, x: Value, y: Value) -> View:
        value, other = (x, y) if isinstance(x, View) else (y, x)
        assert isinstance(value, View)
        if not isinstance(other, View):
            other = finite(torch.as_tensor(other, dtype=torch.float32))
            if other.numel() == 1:
                bound = other.item()
                return clip(b, value, bound, None) if how == "max" else clip(b, value, None, bound)
        first = above(b, value, other) if how == "max" else above(b, other, value)
        return where(b, first, value, other)

    return rule


def clamped(b: Builder, x: View, lower: Value | None = None, upper: Value | None = None) -> View:
    if all(bound is None or isinstance(bound, float | int) for bound in (lower, upper)):
        return clip(b, x, lower, upper)  # type: ignore[arg-type]
    x = x if lower is None else best_of("max")(b, x, lower)
    return x if upper is None else best_of("min")(b, x, upper)
