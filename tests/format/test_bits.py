"""Signs become bits in one documented order, and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bitfactor.format import pack_signs, sign, unpack_signs

signs = hnp.arrays(
    np.int8, st.tuples(st.integers(0, 3), st.integers(1, 130)), elements=st.sampled_from([-1, 1])
)


@given(signs)
def test_unpack_inverts_pack(x):
    np.testing.assert_array_equal(unpack_signs(pack_signs(x), x.shape[-1]), x)


@given(signs)
def test_unused_bits_are_zero(x):
    channels = x.shape[-1]
    if channels % 64:
        assert not (pack_signs(x)[..., -1] >> np.uint64(channels % 64)).any()


def test_bit_order_and_polarity():
    x = np.full(130, -1, np.int8)
    x[[0, 65, 129]] = 1
    assert pack_signs(x).tolist() == [1, 2, 2]


def test_dot_product_is_length_minus_twice_popcount():
    rng = np.random.default_rng(0)
    a, b = np.where(rng.random((2, 77)) > 0.5, 1, -1).astype(np.int8)
    differing = np.bitwise_count(pack_signs(a) ^ pack_signs(b)).sum()
    assert 77 - 2 * int(differing) == int(a.astype(int) @ b)


def test_sign_of_zeros_and_denormals():
    tiny = np.finfo(np.float32).smallest_subnormal
    assert sign(np.array([-1, -tiny, -0.0, 0.0, tiny, 1], np.float32)).tolist() == [-1, -1, -1, -1, 1, 1]


def test_sign_of_nan_is_an_error():
    with pytest.raises(ValueError, match=r"NaN at index \[1\]"):
        sign(np.array([0.0, np.nan]))


def test_pack_refuses_other_numbers():
    with pytest.raises(ValueError, match=r"expected -1 and \+1 alone, found \[0, 1\]"):
        pack_signs(np.array([0, 1], np.int8))


def test_unpack_refuses_a_wrong_word_count():
    with pytest.raises(ValueError, match="expected 2 words for 65 signs, found 1"):
        unpack_signs(np.zeros(1, np.uint64), 65)
