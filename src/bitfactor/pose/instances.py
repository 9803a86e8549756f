"""Annotated instances, whatever data set they are from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.errors import InputError


@dataclass(frozen=True)
class Instances:
    """N instances with J keypoints each, in pixels of their images; pixel centres stand at whole numbers.

    Parameters
    ----------
    images : N paths
        The file that shows each of them.
    centre : (N, 2), side : (N,)
        The square that is cropped, by its middle (x, y) and its side.
    keypoints : (N, J, 2)
        x and y; what stands there for a keypoint without label means nothing.
    labelled : (N, J)
        Which keypoints are known. Keypoints that are hidden behind something but annotated are.
    norm : (N,)
        The length by which errors are measured; NaN where it is not known, and then nothing is measured.
    """

    images: tuple[Path, ...]
    centre: NDArray[np.float64]
    side: NDArray[np.float64]
    keypoints: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, chosen: Sequence[int] | NDArray[np.integer] | range | slice) -> "Instances":
        """Return some of them, in the order given."""
        index = np.arange(len(self))[chosen]
        return Instances(
            tuple(self.images[i] for i in index),
            self.centre[index],
            self.side[index],
            self.keypoints[index],
            self.labelled[index],
            self.norm[index],
        )

    def check(self, where: object) -> "Instances":
        """Return these instances if they can be trained on; `where` they are from is named in the error.

        Raises
        ------
        InputError
            If there are none, or a box or a labelled keypoint is not finite.
        """
        labelled = self.labelled
        if not len(self) or not labelled.any():
            raise _bad(where, "nobody with a labelled keypoint")
        sound = np.isfinite(self.centre).all(1) & np.isfinite(self.side) & (self.side > 0)
        sound &= (np.isfinite(self.keypoints).all(2) | ~labelled).all(1)
        if not sound.all():
            person = int(np.flatnonzero(~sound)[0])
            raise _bad(where, f"no finite box or keypoints for person {person} in {self.images[person].name}")
        return self


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where, expected="annotated instances", found=found, fix="restore the file or give another"
    )
