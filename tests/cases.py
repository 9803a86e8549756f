"""Which cases of a test are in the default suite: the others are slow, and `make test-all` runs them too."""

from collections.abc import Iterable

import pytest


def slow_beside(quick: Iterable[object], cases: Iterable[object]) -> list[object]:
    """Return the cases of a test, those that are not among the quick ones marked as slow."""
    quick = list(quick)
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case: object) -> object:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
