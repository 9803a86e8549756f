"""Means, deviations and intervals are the printed tables' and the library's."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bitfactor.study.statistics import Pooled, compared, holm, paired, sample, student

FRACTIONS = st.floats(0, 1)
BY_SEED = st.dictionaries(st.integers(0, 50), FRACTIONS, min_size=2, max_size=8)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)],
)
def test_quantiles_are_those_of_the_printed_table(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, abs=5e-4)


def test_deviation_is_that_of_a_sample():
    found = sample([0.1, 0.2, 0.6])
    assert (found.mean, found.n) == (pytest.approx(0.3), 3)
    assert found.std == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))


def test_one_value_has_no_deviation_and_none_is_no_sample():
    assert sample([0.5]).std is None
    assert str(sample([0.5])) == "50.00"
    assert sample([]) is None


def test_interval_of_a_published_example():
    """Student's own sleep data (1908): means of paired differences -1.58, 95 % interval -2.46 ... -0.70."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired(dict(enumerate(first)), dict(enumerate(second)))
    assert (found.mean, found.low, found.high) == pytest.approx((-1.58, -2.4598858, -0.7001142), abs=1e-7)
    assert (found.sign, found.pairs) == (-1, 10)


def test_only_common_seeds_are_paired():
    found = paired({0: 0.5, 1: 0.6, 2: 0.9}, {1: 0.5, 2: 0.7, 3: 0.0})
    assert (found.mean, found.pairs) == (pytest.approx(0.15), 2)
    assert paired({0: 0.5}, {1: 0.5}) is None


def test_one_pair_has_no_interval():
    found = paired({0: 0.5}, {0: 0.3})
    assert (found.low, found.high, found.sign, found.pairs) == (None, None, 0, 1)
    assert str(found) == "+20.00"


@given(BY_SEED, BY_SEED)
def test_difference_turns_with_its_sides(ours, theirs):
    found, turned = paired(ours, theirs), paired(theirs, ours)
    if found is None:
        assert turned is None
        return
    assert turned.mean == pytest.approx(-found.mean)
    assert turned.sign == -found.sign
    if found.low is not None:
        assert (turned.low, turned.high) == (pytest.approx(-found.high), pytest.approx(-found.low))
        assert found.low <= found.mean <= found.high


@given(BY_SEED, st.floats(-1, 1))
def test_what_seeds_share_drops_out(theirs, shift):
    found = paired({seed: value + shift for seed, value in theirs.items()}, theirs)
    assert found.mean == pytest.approx(shift, abs=1e-12)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


@given(st.lists(FRACTIONS, min_size=2, max_size=9))
def test_sample_agrees_with_the_library(values):
    found = sample(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.std == pytest.approx(statistics.stdev(values), abs=1e-12)


def test_a_pooled_difference_is_the_t_test_of_equal_variances():
    ours, theirs = {0: 0.5, 1: 0.7, 2: 0.65}, {0: 0.4, 1: 0.45, 2: 0.5, 3: 0.3}
    found, p = Pooled.over([ours, theirs]).apart(ours, theirs)
    expected = stats.ttest_ind([*ours.values()], [*theirs.values()])
    assert p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_the_deviation_is_pooled_over_rows():
    assert Pooled.over([{0: 1.0, 1: 3.0}, {0: 0.0, 1: 0.0}]) == Pooled(1.0, 2)


def test_rows_are_compared_by_a_deviation_that_is_pooled_over_all_of_them():
    """The third row is in no comparison, and counts in the interval of the two others."""
    rows = {"a": {0: 0.5, 1: 0.52}, "b": {0: 0.4, 1: 0.42}, "c": {0: 0.1, 1: 0.3}}
    (found,) = compared(rows, [("a", "b")], 0.01)
    deviation = math.sqrt((0.0002 + 0.0002 + 0.02) / 3)
    half = stats.t.ppf(0.975, 3) * deviation
    assert (found.difference.low, found.difference.high) == pytest.approx((0.1 - half, 0.1 + half))


def test_holm_stops_at_the_first_that_fails():
    assert holm({"a": 0.04, "b": 0.001, "c": 0.03}) == {"b"}
    assert holm({"a": 0.04, "b": 0.001, "c": 0.02}) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("apart", "smallest", "verdict"),
    [
        (0.1, 0.01, "better"),
        (-0.1, 0.01, "worse"),
        (0.0, 0.01, "no difference that matters"),
        (0.1, 0.2, "no difference that matters"),
        (0.1, 0.0999, "undecided"),
        (0.001, 0.0005, "undecided"),
    ],
)
def test_a_comparison_is_judged_by_the_smallest_difference_of_interest(apart, smallest, verdict):
    theirs = {0: 0.5, 1: 0.502, 2: 0.498}
    ours = {seed: value + apart for seed, value in theirs.items()}
    (found,) = compared({"a": ours, "b": theirs}, [("a", "b")], smallest)
    assert found.verdict == verdict


def test_what_is_not_certain_with_the_others_is_undecided():
    theirs = {0: 0.5, 1: 0.52, 2: 0.48}
    rows = {"none": theirs} | {
        name: {seed: value + apart for seed, value in theirs.items()}
        for name, apart in (("a", 0.045), ("b", 0.0), ("c", 0.001), ("d", 0.002))
    }
    found = compared(rows, [(name, "none") for name in "abcd"], 0.001)
    assert found[0].difference.sign == 1
    assert (found[0].certain, found[0].verdict) == (False, "undecided")
