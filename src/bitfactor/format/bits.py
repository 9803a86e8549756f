"""Signs as bits: the one place that states the rule.

- **sign** (equation 1 of the paper): -1 for x <= 0, +1 for x > 0, by comparison; so 0.0, -0.0 and negative
  denormals give -1. NaN has no sign and is an error.
- **polarity**: bit 1 is +1, bit 0 is -1.
- **order**: channel c is bit `c % 64` (least significant first) of 64-bit word `c // 64`. The channel axis is
  last: words of a weight stand in (O, kh, kw, C/64) order, those of an activation in (H, W, C/64).
- **tail**: where C is not a multiple of 64, the unused high bits of the last word are 0 in weights and
  activations. So they add nothing to popcount(a xor b).

With these, the dot product of two sign vectors of length C is `C - 2 * popcount(a xor b)`.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.arrays import expect_array
from bitfactor.common.checks import expect
from bitfactor.common.errors import InputError

WORD_BITS = 64


def sign(x: NDArray[np.floating | np.integer]) -> NDArray[np.int8]:
    """Return -1 where x <= 0 and +1 where x > 0 (equation 1 of the paper), shaped as x.

    Raises
    ------
    InputError
        If x is no array of values, or holds NaN.

    Example
    -------
    >>> sign(np.array([-2.0, -0.0, 0.0, 1e-45], np.float32))
    array([-1, -1, -1,  1], dtype=int8)
    """
    expect_array("x", x, (...,))
    if np.isnan(x).any():
        where = np.argwhere(np.isnan(x))[0].tolist()
        raise InputError(
            "x",
            expected="values that have a sign",
            found=f"NaN at index {where} of an array shaped {x.shape}",
            fix="NaN is neither above 0 nor below: find out where it is from",
        )
    return np.where(x > 0, np.int8(1), np.int8(-1))


def words_for(channels: int) -> int:
    """Return how many 64-bit words hold `channels` signs."""
    return -(-channels // WORD_BITS)


def pack_signs(signs: NDArray[np.int8]) -> NDArray[np.uint64]:
    """Pack -1/+1 along the last axis, (..., C) -> (..., ceil(C / 64)).

    Raises
    ------
    InputError
        If a value is neither -1 nor +1.

    Example
    -------
    >>> pack_signs(np.array([1, -1, 1], np.int8))
    array([5], dtype=uint64)
    """
    expect_array("signs", signs, (..., "C"))
    if not np.isin(signs, (-1, 1)).all():
        raise InputError(
            "signs",
            expected="-1 and +1 alone",
            found=f"{np.unique(signs)[:8].tolist()}",
            fix="take the sign first, as bitfactor.format.sign does",
        )
    *rest, channels = signs.shape
    padded = np.zeros((*rest, words_for(channels) * WORD_BITS), np.bool_)
    padded[..., :channels] = signs > 0
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack_signs(words: NDArray[np.uint64], channels: int) -> NDArray[np.int8]:
    """Unpack what `pack_signs` packed, (..., ceil(channels / 64)) -> (..., channels) of -1 and +1.

    >>> unpack_signs(np.array([5], np.uint64), channels=3)
    array([ 1, -1,  1], dtype=int8)

    Raises
    ------
    InputError
        If `channels` signs do not take as many words.
    """
    expect_array("words", words, (..., "words"), "u")
    expect("channels", channels, int)
    if channels < 1:
        raise InputError("channels", expected="1 or more", found=str(channels), fix="pass how many there are")
    if words.shape[-1] != words_for(channels):
        raise InputError(
            "words",
            expected=f"{words_for(channels)} words for {channels} signs",
            found=str(words.shape[-1]),
            fix="pass as many channels as were packed",
        )
    octets = np.ascontiguousarray(words).astype("<u8", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, count=channels, bitorder="little")
    return (bits.astype(np.int8) * 2 - 1).astype(np.int8, copy=False)


def are_signs(role: str, array: NDArray[Any]) -> bool:
    """Whether this is the weight of a real-valued layer, -1 and +1 alone, which a file holds as bits."""
    return role == "weight" and array.dtype == np.int8 and array.size > 0 and bool((np.abs(array) == 1).all())


def is_packed(role: str, array: NDArray[Any]) -> bool:
    """Whether a file holds a tensor of a node as bits."""
    return array.dtype == np.uint64 or are_signs(role, array)


def stored_bytes(role: str, array: NDArray[Any]) -> int:
    """Return the bytes that a tensor of a node takes in a file."""
    return -(-array.size // 8) if are_signs(role, array) else array.nbytes


def flat_bits(signs: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return signs as bits, one behind the other, the first the highest of its byte; 1 is +1."""
    return np.packbits(signs.reshape(-1) > 0)


def of_flat_bits(bits: NDArray[np.uint8], shape: Sequence[int]) -> NDArray[np.int8]:
    """Undo `flat_bits`."""
    count = prod(shape)
    if bits.dtype != np.uint8 or bits.shape != (-(-count // 8),):
        raise ValueError(f"{bits.dtype} {bits.shape} for the signs of {tuple(shape)}")
    ones = np.unpackbits(bits)[:count].astype(np.int8)
    return (2 * ones - 1).reshape(shape)
