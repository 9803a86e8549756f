"""Handwritten digits: 1,797 scans of 8x8 pixels that come with scikit-learn (Alpaydin & Kaynak 1998)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bitfactor.checks import checked
from bitfactor.data.dataset import Batch
from bitfactor.data.scans import TEST_NAME, read_scans
from bitfactor.data.split import expect_some
from bitfactor.format import InputSpec

_SHIFT = 0.8 / 4  # of half the image's side: 0.8 pixels
_ANGLE = 12.0  # degrees
_SCALE = 0.1


@dataclass(frozen=True)
class Digits:
    """The digits, 80 % to train on and 20 % in the test set, the same split every time.

    `images` are (N, 1, 8, 8), normalised; `labels` (N,) are 0 to 9. Strokes are bright on a dark ground.

    Example
    -------
    >>> digits = Digits.load()
    >>> len(digits.train[1]), len(digits.test[1])
    (1437, 360)
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    input_spec: InputSpec
    labels: tuple[str, ...]
    move: bool = True
    test_name: str = TEST_NAME

    @classmethod
    @checked
    def load(cls, move: bool = True) -> "Digits":
        """Read the scans and split them, with the classes equally often.

        `move` says whether training images are turned, scaled and shifted a little.

        Raises
        ------
        InputError
            If scikit-learn is not installed.
        """
        scans = read_scans()
        train, test = torch.from_numpy(scans.train), torch.from_numpy(scans.test)
        images = torch.tensor(scans.images).view(-1, 1, 8, 8)
        mean, std = float(images[train].mean()), float(images[train].std())
        images, targets = (images - mean) / std, torch.tensor(scans.classes)
        return cls(
            (images[train], targets[train]),
            (images[test], targets[test]),
            InputSpec(size=(8, 8), resize=(8, 8), mean=(mean,), std=(std,)),
            tuple(str(digit) for digit in range(10)),
            move,
        )

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on: shuffled, and each image moved a little."""
        images, labels = self.train
        order = torch.randperm(len(labels), generator=_generator(seed, epoch, -1))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size]
            inputs = images[chosen]
            if self.move:
                inputs = augment(inputs, _generator(seed, epoch, step))
            yield inputs[rank::world], labels[chosen][rank::world]

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the digits of the test set in order."""
        images, labels = (part[rank::world] for part in self.test)
        for start in range(0, len(labels), expect_some("batch_size", batch_size)):
            yield images[start : start + batch_size], labels[start : start + batch_size]

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train[1]) // expect_some("batch_size", batch_size)


def _generator(seed: int, epoch: int, step: int) -> torch.Generator:
    mixed = np.random.SeedSequence([seed, epoch, step + 1]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(mixed))


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift each image of (N, 1, H, W) by a small random amount; edges are repeated."""
    n = len(images)
    angle, scale, dx, dy = (torch.rand(4, n, generator=generator) * 2 - 1).unbind()
    angle, scale = torch.deg2rad(angle * _ANGLE), 1 + scale * _SCALE
    cos, sin = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack([cos, -sin, dx * _SHIFT, sin, cos, dy * _SHIFT], 1).view(n, 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
