"""CIFAR-10 and CIFAR-100: 60,000 images of 32x32 pixels (Krizhevsky 2009), official python version.

Handwritten digits: 1,797 scans of 8x8 pixels that come with scikit-learn (Alpaydin & Kaynak 1998).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from bitfactor.common.checks import checked
from bitfactor.data.augment import generator, shift_and_flip
from bitfactor.data.dataset import Batch
from bitfactor.data.readers.cifar import (
    CIFAR10,
    CIFAR100,
    SIDE,
    TEST_NAME,
    CifarFiles,
    CifarLayout,
    Pixels,
    read_scans,
    without_last_tenth,
)
from bitfactor.data.readers.files import Holdout, balanced, expect_some, validation_name, warn_of_empty
from bitfactor.format import InputSpec


@dataclass(frozen=True)
class _InMemory:
    """Images and labels that live on one device."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train[1]) // expect_some("batch_size", batch_size)

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order."""
        images, labels = (part[rank::world] for part in self.test)
        for start in range(0, len(labels), expect_some("batch_size", batch_size)):
            stop = start + batch_size
            yield self._normalised(images[start:stop]), labels[start:stop]

    def _normalised(self, images: Tensor) -> Tensor:
        return images


@dataclass(frozen=True)
class Cifar(_InMemory):
    """Images in memory: `train` and `test` are (N, 3, 32, 32) uint8 RGB with labels (N,) int64.

    They live on one device, are augmented there (shifted by up to 4 pixels if `crop`, half of them mirrored
    if `mirror`) and come out normalised, as float32. `test_name` says which images `test` are.
    """

    labels: tuple[str, ...]
    crop: bool = True
    mirror: bool = True
    test_name: str = "test images"
    layout: ClassVar[CifarLayout]

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        limit: int | None = None,
        holdout: Holdout = "test",
        crop: bool = True,
        mirror: bool = True,
    ) -> Self:
        """Read the official files.

        Parameters
        ----------
        directory
            The directory of the batches, or the one that holds it or the archive as it was downloaded.
        limit
            At most so many images to train on and as many in the test set, classes equally often.
        holdout
            "validation" takes the last tenth of the training images in place of the test images.
        crop, mirror
            Whether training images are shifted, and half of them mirrored.
        """
        files = CifarFiles.at(directory, cls.layout)
        labels = files.labels()
        train, name = files.train(len(labels)), f"test images in {files.where}"
        if holdout == "validation":
            (train, test), name = without_last_tenth(train), validation_name(files.where)
        else:
            test = files.test(len(labels))
        chosen = _tensors(train, limit)
        warn_of_empty(files.where, chosen[1].numpy(), labels)
        return cls(chosen, _tensors(test, limit), labels, crop, mirror, name)

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        size = (SIDE, SIDE)
        return InputSpec(size=size, resize=size, mean=self.layout.mean, std=self.layout.std)

    def to(self, device: torch.device | str) -> Self:
        """Return the same images on `device`; batches are made there."""
        (images, labels), (test_images, test_labels) = self.train, self.test
        train, test = (images.to(device), labels.to(device)), (test_images.to(device), test_labels.to(device))
        return replace(self, train=train, test=test)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, shuffled and augmented."""
        images, labels = self.train
        order = torch.randperm(len(labels), generator=generator(seed, epoch, 0))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size]
            draws = torch.rand(batch_size, 3, generator=generator(seed, epoch, step + 1))
            if not self.crop:
                draws[:, :2] = 0.5  # in the middle: not shifted
            if not self.mirror:
                draws[:, 2] = 1
            mine = chosen[rank::world].to(labels.device)
            moved = shift_and_flip(images[mine], draws[rank::world].to(labels.device), self._mean_colour())
            yield self._normalised(moved), labels[mine]

    def _mean_colour(self) -> tuple[int, ...]:
        return tuple(round(255 * mean) for mean in self.layout.mean)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = (
            torch.tensor(values, device=images.device).view(3, 1, 1)
            for values in (self.layout.mean, self.layout.std)
        )
        return (images.float() / 255 - mean) / std


class Cifar10(Cifar):
    """Ten classes: 50,000 images to train on and 10,000 to test.

    Example
    -------
    >>> data = Cifar10.load(Path("data"))              # data/cifar-10-batches-py/data_batch_1 ...
    >>> inputs, labels = next(data.train_batches(128, seed=0, epoch=0))
    """

    layout = CIFAR10


class Cifar100(Cifar):
    """A hundred classes: 50,000 images to train on and 10,000 to test."""

    layout = CIFAR100


def _tensors(images: Pixels, limit: int | None) -> tuple[Tensor, Tensor]:
    pixels, labels = images
    chosen = balanced(labels, limit)
    return torch.from_numpy(pixels[chosen]).view(-1, 3, SIDE, SIDE), torch.from_numpy(labels[chosen])


_SHIFT = 0.8 / 4  # of half the image's side: 0.8 pixels
_ANGLE = 12.0  # degrees
_SCALE = 0.1


@dataclass(frozen=True)
class Digits(_InMemory):
    """The digits, 80 % to train on and 20 % in the test set, the same split every time.

    `images` are (N, 1, 8, 8), normalised; `labels` (N,) are 0 to 9. Strokes are bright on a dark ground.

    Example
    -------
    >>> digits = Digits.load()
    >>> len(digits.train[1]), len(digits.test[1])
    (1437, 360)
    """

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
        order = torch.randperm(len(labels), generator=generator(seed, epoch, 0))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size]
            inputs = images[chosen]
            if self.move:
                inputs = augment(inputs, generator(seed, epoch, step + 1))
            yield inputs[rank::world], labels[chosen][rank::world]


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift each image of (N, 1, H, W) by a small random amount; edges are repeated."""
    n = len(images)
    angle, scale, dx, dy = (torch.rand(4, n, generator=generator) * 2 - 1).unbind()
    angle, scale = torch.deg2rad(angle * _ANGLE), 1 + scale * _SCALE
    cos, sin = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack([cos, -sin, dx * _SHIFT, sin, cos, dy * _SHIFT], 1).view(n, 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
