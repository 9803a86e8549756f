"""Which pictures are held out, and which a trial with a few of them takes."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Holdout = Literal["test", "validation"]
"""What is measured: the data set's own test part, or a fixed tenth of its training part. With "validation"
the test part stays unseen, so that settings can be chosen by what is measured."""

Indices = NDArray[np.int64]


def balanced(labels: NDArray[np.integer], limit: int | None) -> Indices:
    """Return the indices of `limit` pictures in order: the first of each class, equally many if they last.

    Without a limit all of them.

    >>> balanced(np.array([0, 0, 0, 1, 1]), 3)
    array([0, 1, 3])
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    by_class = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[by_class], labels[by_class])
    place = np.empty(len(labels), np.int64)  # of a picture among those of its class
    place[by_class] = np.arange(len(labels)) - first
    return np.sort(np.argsort(place, kind="stable")[:limit])
