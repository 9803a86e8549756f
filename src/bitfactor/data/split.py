"""Which images a network is evaluated on, and which a trial with a few of them takes."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import expect
from bitfactor.errors import InputError

Holdout = Literal["test", "validation"]
"""What is evaluated on: the data set's own test part, or a fixed tenth of its training part. With
"validation" the test part stays unseen, so that settings can be chosen by what is found."""

Indices = NDArray[np.int64]


def validation_name(where: object) -> str:
    """Return what images are called that are taken from those for training, for use after their number.

    >>> validation_name("flowers")
    'validation images (a tenth of the training images in flowers)'
    """
    return f"validation images (a tenth of the training images in {where})"


def expect_some(where: str, number: int) -> int:
    """Return `number`, which is to be 1 or more.

    Raises
    ------
    InputError
        If it is not, or no integer.
    """
    expect(where, number, int)
    if number < 1:
        raise InputError(where, expected="1 or more", found=str(number), fix="choose how many are taken")
    return number


def balanced(labels: NDArray[np.integer], limit: int | None) -> Indices:
    """Return the indices of `limit` images in order: the first of each class, equally many if they last.

    Without a limit all of them.

    Raises
    ------
    InputError
        If the limit is below 1.

    Example
    -------
    >>> balanced(np.array([0, 0, 0, 1, 1]), 3)
    array([0, 1, 3])
    """
    if limit is None or expect_some("limit", limit) >= len(labels):
        return np.arange(len(labels))
    by_class = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[by_class], labels[by_class])
    place = np.empty(len(labels), np.int64)  # of an image among those of its class
    place[by_class] = np.arange(len(labels)) - first
    return np.sort(np.argsort(place, kind="stable")[:limit])
