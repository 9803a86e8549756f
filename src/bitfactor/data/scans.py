"""The scans of handwritten digits that come with scikit-learn (Alpaydin & Kaynak 1998), without torch."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.errors import InputError, imported

TEST_NAME = "test images (scikit-learn's digits)"


@dataclass(frozen=True)
class Scans:
    """All digits: `images` (N, 8, 8) of 0..1, bright on a dark ground, and `classes` (N,), 0 to 9.

    `train` and `test` are indices of 80 % and 20 %, with the classes equally often, the same every time.
    """

    images: NDArray[np.float32]
    classes: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]


@cache
def read_scans() -> Scans:
    """Read the scans and split them.

    Raises
    ------
    InputError
        If scikit-learn is not installed.
    """
    datasets = imported("sklearn.datasets", "digits", "train")
    selection = imported("sklearn.model_selection", "digits", "train")
    pixels, classes = datasets.load_digits(return_X_y=True)
    train, test = selection.train_test_split(
        range(len(classes)), test_size=0.2, random_state=0, stratify=classes
    )
    images = np.asarray(pixels / 16, np.float32).reshape(-1, 8, 8)
    return Scans(images, np.asarray(classes, np.int64), np.array(train), np.array(test))


def expect_no_directory(directory: Path | None) -> None:
    """Raise InputError where a directory of data is named, since the digits need none."""
    if directory is not None:
        raise InputError(
            "--data",
            expected="none: the digits come with scikit-learn",
            found=str(directory),
            fix="leave it out",
        )
