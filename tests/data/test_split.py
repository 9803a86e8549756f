"""A limited data set has the same number of images of each class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bitfactor.data.readers.files import balanced


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 70))
def test_shares_are_as_equal_as_the_classes_allow(labels, limit):
    labels = np.array(labels, np.int64)
    chosen = balanced(labels, limit)
    assert len(chosen) == min(limit, len(labels))
    assert (np.diff(chosen) > 0).all()
    counts, there = np.bincount(labels[chosen], minlength=5), np.bincount(labels, minlength=5)
    unused = counts < there
    if unused.any():
        assert counts.max() <= counts[unused].min() + 1
    for label in range(5):
        np.testing.assert_array_equal(
            chosen[labels[chosen] == label], np.flatnonzero(labels == label)[: counts[label]]
        )
