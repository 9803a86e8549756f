"""Crops of instances: what a worker makes of a few of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import check_fields
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton
from bitfactor.data.readers.instances import Instances
from bitfactor.pose import crop_matrix, transform, warp
from bitfactor.pose.images import read_image

Indices = NDArray[np.integer]


@dataclass(frozen=True)
class Movement:
    """How instances are moved at random in their crops: drawn uniformly, and half of them mirrored.

    Parameters
    ----------
    rotation
        Degrees to either side.
    zoom
        Largest fraction, below 1, by which a person grows or shrinks.
    mirror
        Whether half of the instances are mirrored.

    Example
    -------
    >>> scale, degrees, mirrored = Movement(zoom=0.1)(seed=0, epoch=0, person=0)
    """

    rotation: float = 30.0
    zoom: float = 0.3
    mirror: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        for name, fits, expected in (
            ("rotation", 0 <= self.rotation <= 180, "0 to 180 degrees"),
            ("zoom", 0 <= self.zoom < 1, "0 or more, and below 1"),
        ):
            if not fits:
                raise InputError(
                    f"--{name}", expected=expected, found=str(getattr(self, name)), fix="change it"
                )

    def __call__(self, seed: int, epoch: int, person: int) -> tuple[float, float, bool]:
        """Draw scale, rotation in degrees and whether to mirror; it depends on the three numbers alone."""
        scale, rotation, mirror = np.random.default_rng((seed, epoch, person)).random(3).tolist()
        return (
            1 + self.zoom * (2 * scale - 1),
            self.rotation * (2 * rotation - 1),
            self.mirror and mirror < 0.5,
        )


PAPER = Movement()


@dataclass(frozen=True)
class Images:
    """Decoded images by path, RGB; with `keep` they stay in memory."""

    keep: bool
    _kept: dict[Path, NDArray[np.uint8]] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, path: Path) -> NDArray[np.uint8]:
        if path in self._kept:
            return self._kept[path]
        image = read_image(path, channels=3)
        if self.keep:
            self._kept[path] = image
        return image

    def fill(self, instances: Instances) -> None:
        """Decode the images that are kept: at once, so that they lie close together in memory."""
        for path in instances.images if self.keep else ():
            self[path]


@dataclass(frozen=True)
class CropTargets:
    """Keypoints of n crops: (n, J, 2) in pixels, which are labelled (n, J), and the norm (n,)."""

    keypoints: NDArray[np.float32]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float32]


@dataclass(frozen=True)
class Crops:
    """Fills an array (at least n, size, size, 3) of bytes with the crops of a batch, by its number.

    `batches` lists the instances of each batch. They are moved by `movement` as the `key` (seed, epoch) says,
    or stand as they are without one.
    """

    instances: Instances
    skeleton: Skeleton
    size: int
    images: Images
    batches: Sequence[Indices] | Indices
    movement: Movement
    key: tuple[int, int] | None

    def __call__(self, number: int, crops: NDArray[np.uint8]) -> CropTargets:
        """Return where the keypoints are in these crops."""
        chosen, keypoints = self.batches[number], len(self.skeleton.keypoints)
        found = CropTargets(
            np.zeros((len(chosen), keypoints, 2), np.float32),
            np.empty((len(chosen), keypoints), bool),
            np.empty(len(chosen), np.float32),
        )
        for i, person in enumerate(chosen):
            matrix, flip, scale = self._map(int(person))
            crops[i] = warp(self.instances.pixels(int(person), self.images), matrix, self.size)
            order = list(self.skeleton.flipped) if flip else slice(None)
            found.labelled[i] = self.instances.labelled[person][order]
            found.keypoints[i] = transform(self.instances.keypoints[person][order], matrix)
            found.norm[i] = self.instances.norm[person] * scale
        found.keypoints[~found.labelled] = 0
        return found

    def _map(self, person: int) -> tuple[NDArray[np.float64], bool, float]:
        """Return the matrix of a person's crop, whether it mirrors, and crop pixels per image pixel."""
        zoom, rotation, flip = (1.0, 0.0, False) if self.key is None else self.movement(*self.key, person)
        side = self.instances.side[person] / zoom
        matrix = crop_matrix(self.instances.centre[person], side, self.size, rotation, flip)
        return matrix, flip, self.size / side
