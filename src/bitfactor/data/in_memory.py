"""What the training loop asks of a data set, and data sets in memory.

CIFAR-10 and CIFAR-100 (Krizhevsky 2009), and the digits of scikit-learn (Alpaydin & Kaynak 1998).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeVar

import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

from bitfactor.common.checks import check_fields, checked
from bitfactor.common.errors import InputError, near_matches
from bitfactor.data.augment import generator, shift_and_flip
from bitfactor.data.readers.cifar import (
    CIFAR10,
    CIFAR100,
    SIDE,
    TEST_NAME,
    CifarFiles,
    CifarLayout,
    Pixels,
    expect_no_directory,
    read_scans,
    without_last_tenth,
)
from bitfactor.data.readers.files import Holdout, balanced, expect_some, validation_name, warn_of_empty
from bitfactor.format import InputSpec

Target = Tensor | Mapping[str, Tensor]
Batch = tuple[Tensor, Target]
O = TypeVar("O")


class DataSet(Protocol):
    """Images to train on and test images, in batches: inputs (N, C, H, W) with what to learn from them.

    `labels` name the classes; a data set for another task leaves them empty. Where it has them, `test_name`
    says which images the test images are, for use after their number, and `identity()` what `identity_of`
    returns of them.
    """

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        ...

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        ...

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch, shuffled and augmented, from number `start` on.

        Of `world` processes, number `rank` gets its equal part of each batch: `batch_size / world` images.
        What a batch holds depends on (seed, epoch, its number) alone. So an interrupted epoch can go on, and
        the joined batch does not depend on the number of processes.
        """
        ...

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order, as for inference; `rank` of `world` gets its part."""
        ...


def options_of(given: O | None, default: O, named: Mapping[str, Any]) -> O:
    """Return the options of a data set: those given, else its own, with those named changed."""
    for name in named.keys() - vars(default).keys():
        fix = near_matches(name, [*vars(default), "limit", "workers"])
        raise InputError("load()", expected="a known option", found=name, fix=fix)
    return replace(default if given is None else given, **named)  # type: ignore[type-var]


@dataclass(frozen=True)
class _InMemory(ABC):
    """Images and labels that live on one device, where batches are made."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def to(self, device: torch.device | str) -> Self:
        """Return the same images on `device`; batches are made there."""
        (images, labels), (test_images, test_labels) = self.train, self.test
        train, test = (images.to(device), labels.to(device)), (test_images.to(device), test_labels.to(device))
        return replace(self, train=train, test=test)

    def limited(self, limit: int) -> Self:
        """Return the same with at most so many test images, equally many of each class."""
        images, labels = self.test
        chosen = torch.from_numpy(balanced(labels.cpu().numpy(), limit)).to(labels.device)
        return replace(self, test=(images[chosen], labels[chosen]))

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train[1]) // expect_some("batch_size", batch_size)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, shuffled and augmented."""
        images, labels = self.train
        order = torch.randperm(len(labels), generator=generator(seed, epoch, 0))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size].to(labels.device)
            draws = generator(seed, epoch, step + 1)
            yield self._moved(images[chosen], draws, slice(rank, None, world)), labels[chosen][rank::world]

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order."""
        images, labels = (part[rank::world] for part in self.test)
        for start in range(0, len(labels), expect_some("batch_size", batch_size)):
            stop = start + batch_size
            yield self._normalised(images[start:stop]), labels[start:stop]

    @abstractmethod
    def _moved(self, images: Tensor, draws: torch.Generator, mine: slice) -> Tensor:
        """Return inputs of some images of a batch, changed as is drawn for the whole batch."""

    def _normalised(self, images: Tensor) -> Tensor:
        return images


@dataclass(frozen=True)
class CifarOptions:
    """CIFAR with 10 or 100 classes."""

    classes: Annotated[Literal[10, 100], tyro.conf.Suppress]
    holdout: Holdout = "test"
    """What is evaluated on: the test images, or a tenth of the training images, to choose settings by."""
    crop: bool = True
    """Shift training images by up to 4 pixels."""
    mirror: bool = True
    """Mirror half of the training images."""
    classes_in_files: ClassVar[bool] = True  # so a network can be evaluated on any directory of its classes

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, directory: Path | None) -> DataSet:
        """Load the official files."""
        return (Cifar10 if self.classes == 10 else Cifar100).load(directory, self)


@dataclass(frozen=True)
class Cifar(_InMemory):
    """Images in memory: `train` and `test` are (N, 3, 32, 32) uint8 RGB with labels (N,) int64.

    They live on one device, are augmented there and come out normalised, as float32. `test_name` says which
    images `test` are.
    """

    labels: tuple[str, ...]
    options: CifarOptions
    test_name: str = "test images"
    layout: ClassVar[CifarLayout]
    defaults: ClassVar[CifarOptions]

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        options: CifarOptions | None = None,
        *,
        limit: int | None = None,
        **named: Any,
    ) -> Self:
        """Read the official files.

        Parameters
        ----------
        directory
            The directory of the batches, or the one that holds it or the archive as it was downloaded.
        options
            What else there is to choose; options can be named one by one as well.
        limit
            At most so many images to train on and as many in the test set, classes equally often.
        """
        chosen = options_of(options, cls.defaults, named)
        files = CifarFiles.at(directory, cls.layout)
        labels = files.labels()
        train, name = files.train(len(labels)), f"test images in {files.where}"
        if chosen.holdout == "validation":
            (train, test), name = without_last_tenth(train), validation_name(files.where)
        else:
            test = files.test(len(labels))
        images = _tensors(train, limit)
        warn_of_empty(files.where, images[1].numpy(), labels)
        return cls(images, _tensors(test, limit), labels, chosen, name)

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        size = (SIDE, SIDE)
        return InputSpec(size=size, resize=size, mean=self.layout.mean, std=self.layout.std)

    def _moved(self, images: Tensor, draws: torch.Generator, mine: slice) -> Tensor:
        drawn = torch.rand(len(images), 3, generator=draws)
        if not self.options.crop:
            drawn[:, :2] = 0.5  # in the middle: not shifted
        if not self.options.mirror:
            drawn[:, 2] = 1
        mean = tuple(round(255 * mean) for mean in self.layout.mean)
        return self._normalised(shift_and_flip(images[mine], drawn[mine].to(images.device), mean))

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

    layout, defaults = CIFAR10, CifarOptions(10)


class Cifar100(Cifar):
    """A hundred classes: 50,000 images to train on and 10,000 to test."""

    layout, defaults = CIFAR100, CifarOptions(100)


def _tensors(images: Pixels, limit: int | None) -> tuple[Tensor, Tensor]:
    pixels, labels = images
    chosen = balanced(labels, limit)
    return torch.from_numpy(pixels[chosen]).view(-1, 3, SIDE, SIDE), torch.from_numpy(labels[chosen])


_SHIFT = 0.8 / 4  # of half the image's side: 0.8 pixels
_ANGLE = 12.0  # degrees
_SCALE = 0.1


@dataclass(frozen=True)
class DigitsOptions:
    """The scans that come with scikit-learn."""

    move: bool = True
    """Turn, scale and shift training images a little."""

    def __call__(self, directory: Path | None) -> DataSet:
        """Load the scans, which need no directory."""
        return Digits.load(directory, self)


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
    options: DigitsOptions
    test_name: str = TEST_NAME
    defaults: ClassVar[DigitsOptions] = DigitsOptions()

    @classmethod
    @checked
    def load(
        cls, directory: Path | None = None, options: DigitsOptions | None = None, **named: Any
    ) -> "Digits":
        """Read the scans and split them, with the classes equally often; there is no directory to name.

        Raises
        ------
        InputError
            If scikit-learn is not installed.
        """
        expect_no_directory(directory)
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
            options_of(options, cls.defaults, named),
        )

    def _moved(self, images: Tensor, draws: torch.Generator, mine: slice) -> Tensor:
        return (augment(images, draws) if self.options.move else images)[mine]


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift each image of (N, 1, H, W) by a small random amount; edges are repeated."""
    n = len(images)
    angle, scale, dx, dy = (torch.rand(4, n, generator=generator) * 2 - 1).unbind()
    angle, scale = torch.deg2rad(angle * _ANGLE), 1 + scale * _SCALE
    cos, sin = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack([cos, -sin, dx * _SHIFT, sin, cos, dy * _SHIFT], 1).view(n, 2, 3)
    grid = F.affine_grid(matrix.to(images.device), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
