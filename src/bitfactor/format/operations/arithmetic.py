"""The arithmetic of float32 that all instruction sets share, stated to the last bit.

Results are the same on every machine:

- `fma(a, b, c)` is a * b + c with a single rounding; any other operation rounds once by itself;
- a convolution's sum starts at the bias and takes one fma a tap, in the order (kh, kw, c); a linear layer's
  in the order of the features. A tap outside the map counts as x = 0;
- `exponential` is a polynomial in fma, see there;
- a mean is the sum in the order (kh, kw), or of the pixels in row-major order, divided by their count.
"""

import numpy as np

from bitfactor.format.operations.operation import Array, Float


def fma(a: Array, b: Array, c: Array) -> Float:
    """Return a * b + c rounded once to float32, for float32 a, b and c.

    The product is exact in float64, and so is the error of the sum. Rounding twice, to float64 and then to
    float32, can differ from rounding once where the float64 sum looks half-way between two float32, or lies
    below the normal ones; there the sum is first rounded to odd.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    total = np.asarray(product + c)
    half_way = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    doubtful = (half_way | (np.abs(total) < np.finfo(np.float32).tiny)) & (total != 0)
    if doubtful.any():
        product, addend = (np.broadcast_to(v, total.shape)[doubtful] for v in (product, c))
        total[doubtful] = _round_to_odd(product, addend.astype(np.float64), total[doubtful])
    return total.astype(np.float32)


def _round_to_odd(a: Array, b: Array, total: Array) -> Array:
    """Return a + b, where inexact, as that neighbour whose last bit is 1; `total` is the rounded sum."""
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(even & (error != 0), neighbour, total)


def cut(x: Float, lower: float, upper: float) -> Float:
    """Return x between the bounds, NaN as the lower one."""
    x = np.where(x > np.float32(lower), x, np.float32(lower))
    return np.where(x < np.float32(upper), x, np.float32(upper))


def exponential(x: Float) -> Float:
    """Return exp(x), x cut to -87 ... 88, within two units in the last place.

    x = n ln 2 + r; a polynomial of degree 5 gives (exp(r) - 1 - r) / r^2 (coefficients: Cephes, expf).
    """
    magic = _f32(1.5 * 2**23)  # adding it rounds to an integer
    x = cut(x, -87, 88)
    n = fma(x, _f32(1.44269504), magic) - magic
    r = fma(n, _f32(2.12194440e-4), fma(n, _f32(-0.693359375), x))
    p = _f32(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, _f32(c))
    exponential: Float = np.ldexp(fma(p, r * r, r) + _f32(1), n.astype(np.int32))
    return exponential


def logarithm(x: Float) -> Float:
    """Return log(x) of positive x, within two units in the last place.

    x = 2^n (1 + f), f from sqrt(1/2) - 1 to sqrt(2) - 1; a polynomial gives what is above f - f^2 / 2
    (coefficients: Cephes, logf). What is not a normal positive number is taken as the smallest one.
    """
    x = np.where(x > np.finfo(np.float32).tiny, x, np.finfo(np.float32).tiny)
    mantissa, exponent = np.frexp(x)
    small = mantissa < _f32(0.707106781)
    f = np.where(small, mantissa + mantissa, mantissa) - _f32(1)
    n = (exponent - small).astype(np.float32)
    p = _f32(7.0376836292e-2)
    for c in (
        -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    ):  # fmt: skip
        p = fma(p, f, _f32(c))
    square = f * f
    above = fma(n, _f32(-2.12194440e-4), p * f * square)
    return fma(n, _f32(0.693359375), f + fma(square, _f32(-0.5), above))


def gelu(x: Float) -> Float:
    """Return x Phi(x), within 2e-7 abs(x); Phi is that of the normal distribution.

    For abs(x) a polynomial in 1 / (1 + 0.3275911 abs(x) / sqrt(2)) times exp(-x^2 / 2) gives twice what is
    beyond it (Abramowitz and Stegun, 7.1.26).
    """
    t = _f32(1) / fma(np.abs(x), _f32(0.231641888), _f32(1))
    p = _f32(0.5307027145)
    for c in (-0.7265760135, 0.7107068705, -0.142248368, 0.127414796):
        p = fma(p, t, _f32(c))
    with np.errstate(over="ignore"):  # far out nothing is beyond
        beyond = p * t * exponential(x * x * _f32(-0.5))
    return np.where(x > 0, fma(-x, beyond, x), x * beyond)


def sum_of_channels(x: Float) -> Float:
    """Return the sums (N, 1, ...) of x (N, C, ...): 16 side by side, in turns, then added in halves."""
    sums = np.zeros((len(x), 16, *x.shape[2:]), np.float32)
    for first in range(0, x.shape[1], 16):
        part = x[:, first : first + 16]
        sums[:, : part.shape[1]] += part
    for half in (8, 4, 2, 1):
        sums = sums[:, :half] + sums[:, half : 2 * half]
    return sums


def _f32(value: float) -> Float:
    return np.asarray(value, np.float32)
