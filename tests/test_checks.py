"""Annotations decide what is accepted; the message says what was expected, found and what to do."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from bitfactor.common.checks import check_fields, checked, expect, expect_one_of, options_from
from bitfactor.common.errors import InputError
from bitfactor.exporter.report import Obstacle, UnsupportedError

FITTING = [
    (1, int),
    (np.int64(3), int),
    (1, float),
    (1.5, float),
    (np.float32(0.5), float),
    (True, bool),
    (None, int | None),
    ("a", Literal["a", "b"]),
    (-1, Literal[-1, 0, 1]),
    ((1, 2), tuple[int, ...]),
    ((1, "x"), tuple[int, str]),
    (["a"], Sequence[str]),
    ({"a": 1}, Mapping[str, int]),
    (Path("x"), str | Path),
    (len, Callable[[object], int]),
    (np.zeros(2), np.ndarray),
    (object(), object),
    (object(), Any),
]
NOT_FITTING = [
    (True, int, "an integer"),
    ("2", int, "without quotes"),
    (2.0, int, "an integer"),
    (float("nan"), float, "a finite number"),
    (float("inf"), float, "a finite number"),
    (True, float, "a finite number"),
    (1, bool, "True or False"),
    ("no", bool, "True or False"),
    ("c", Literal["a", "b"], "one of a, b"),
    ("tuker", Literal["none", "tucker"], "did you mean tucker?"),
    (True, Literal[-1, 0, 1], "one of -1, 0, 1"),
    ([1], tuple[int, ...], "a sequence (each an integer)"),
    ((1, 2), tuple[int, str], "2 of (an integer, a string)"),
    ("ab", Sequence[str], "a sequence (each a string)"),
    ([1], Sequence[str], "a sequence (each a string)"),
    ({1: 1}, Mapping[str, int], "a dict"),
    (3, str | Path, "a string or a path"),
    (3, Callable[[object], int], "a function"),
    ("x", int | None, "an integer or None"),
]


@pytest.mark.parametrize(("value", "annotation"), FITTING)
def test_what_fits_passes(value, annotation):
    expect("x", value, annotation)


@pytest.mark.parametrize(("value", "annotation", "words"), NOT_FITTING)
def test_what_does_not_fit_is_one_sentence(value, annotation, words):
    with pytest.raises(InputError) as error:
        expect("x", value, annotation)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@dataclass(frozen=True)
class Options:
    rank: int | tuple[int, ...] | None = None
    start: Literal["weight", "he"] = "weight"

    def __post_init__(self):
        check_fields(self)


def test_fields_are_checked_and_lists_become_tuples():
    assert Options(rank=[1, 2]).rank == (1, 2)
    with pytest.raises(InputError, match="start: expected one of weight, he, found 'hee'"):
        Options(start="hee")


def test_an_unknown_option_is_named_with_near_matches():
    assert options_from(Options, {"rank": 3}, "Options") == Options(3)
    with pytest.raises(InputError, match="found strat; did you mean start"):
        options_from(Options, {"strat": "he"}, "Options")


@checked
def scaled(x: float, *, by: int = 2, **others: int) -> float:
    return x * by


@checked
def named(path: str | Path, kind: Literal["a", "b"] = "a") -> str:
    return f"{path}{kind}"


def test_a_checked_function_works_as_before():
    assert scaled(1.5, by=4, more=1) == 6
    assert named.__doc__ is None
    assert named("x", kind="b") == "xb"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: scaled("1"), r"scaled\(x\): expected a finite number"),
        (lambda: scaled(1, by=1.5), r"scaled\(by\): expected an integer"),
        (lambda: named(), "missing a required argument"),
        (lambda: named("x", kid="a"), "did you mean kind"),
        (lambda: named("x", "c"), "expected one of a, b"),
    ],
)
def test_a_checked_function_answers_in_one_sentence(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_one_of():
    expect_one_of("latent", "svd", ["svd"])
    with pytest.raises(InputError, match="choose one of them"):
        expect_one_of("padding", True, [-1, 0, 1])


@pytest.mark.parametrize(
    "error",
    [
        InputError("x", expected="a", found="b", fix="c"),
        UnsupportedError("Net", [Obstacle("layer", "line", "a", "b", "c")] * 2),
    ],
)
def test_an_error_comes_back_from_a_worker(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_what_others_say_is_one_line_and_steers_no_terminal():
    error = InputError(
        "a\x1b[2J.bin", expected="a file", found="one that\n  cannot\r be read\u2028", fix="leave it"
    )
    assert str(error) == "a [2J.bin: expected a file, found one that cannot be read; leave it"
    assert error.found == "one that cannot be read"
