"""CIFAR-10 and CIFAR-100: 60,000 pictures of 32x32 pixels (Krizhevsky 2009), official python version."""

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.data.augment import shift_and_flip
from bitfactor.data.dataset import Batch
from bitfactor.data.pickles import read_pickled
from bitfactor.data.randomness import generator
from bitfactor.data.split import Holdout, balanced
from bitfactor.errors import InputError
from bitfactor.format import InputSpec

_SIDE = 32


@dataclass(frozen=True)
class Layout:
    """Where the official version of a data set keeps what, and the colours of its training pictures."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    names: str
    name_key: str
    label_key: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Cifar:
    """Pictures in memory: `train` and `test` are (N, 3, 32, 32) uint8 RGB with labels (N,) int64.

    They live on one device, are augmented there (shifted by up to 4 pixels, half of them mirrored) and come
    out normalised, as float32.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    labels: tuple[str, ...]
    layout: ClassVar[Layout]

    @classmethod
    def load(cls, directory: Path | None, limit: int | None = None, holdout: Holdout = "test") -> Self:
        """Read the official files.

        Parameters
        ----------
        directory
            The directory of the batches, or the one that holds it or the archive as it was downloaded.
        limit
            At most so many pictures to train on and as many held out, classes in equal shares.
        holdout
            "validation" holds out the last tenth of the training pictures in place of the test pictures.

        Raises
        ------
        InputError
            If a file is missing, damaged or of another data set.
        """
        read, where = reader(directory, cls.layout)
        labels = cls.read_labels(read(cls.layout.names), f"{where}/{cls.layout.names}")
        parts = [cls.read_batch(read(file), f"{where}/{file}", len(labels)) for file in cls.layout.train]
        pixels, targets = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if holdout == "validation":
            kept = len(targets) - len(targets) // 10
            test = pixels[kept:], targets[kept:]
            pixels, targets = pixels[:kept], targets[:kept]
        else:
            test = cls.read_batch(read(cls.layout.test), f"{where}/{cls.layout.test}", len(labels))
        return cls(_tensors(pixels, targets, limit), _tensors(*test, limit), labels)

    @classmethod
    def read_labels(cls, data: bytes, where: str) -> tuple[str, ...]:
        """Return the names of the classes."""
        names = read_pickled(data, where).get(cls.layout.name_key)
        if not isinstance(names, list) or not names:
            raise _bad(where, "no names of classes")
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)

    @classmethod
    def read_batch(cls, data: bytes, where: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return pixels (N, 3072) and labels (N,) of one of the files."""
        content = read_pickled(data, where)
        pixels, labels = content.get("data"), np.asarray(content.get(cls.layout.label_key, []))
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2:
            raise _bad(where, "no pixels")
        if pixels.shape != (len(labels), 3 * _SIDE**2) or not len(labels):
            raise _bad(where, f"pixels of shape {pixels.shape} with {len(labels)} labels")
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
            raise _bad(where, f"labels other than 0 to {classes - 1}")
        return pixels, labels.astype(np.int64)

    @property
    def input_spec(self) -> InputSpec:
        """How a picture becomes an input."""
        size = (_SIDE, _SIDE)
        return InputSpec(size=size, resize=size, mean=self.layout.mean, std=self.layout.std)

    def to(self, device: torch.device | str) -> Self:
        """Return the same pictures on `device`; batches are made there."""
        (images, labels), (test_images, test_labels) = self.train, self.test
        train, test = (images.to(device), labels.to(device)), (test_images.to(device), test_labels.to(device))
        return replace(self, train=train, test=test)

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train[1]) // batch_size

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, shuffled and augmented."""
        images, labels = self.train
        order = torch.randperm(len(labels), generator=generator(seed, epoch, 0))
        for step in range(start, self.steps(batch_size)):
            chosen = order[step * batch_size : (step + 1) * batch_size]
            draws = torch.rand(batch_size, 3, generator=generator(seed, epoch, step + 1))
            mine = chosen[rank::world].to(labels.device)
            moved = shift_and_flip(images[mine], draws[rank::world].to(labels.device), self._mean_colour())
            yield self._normalised(moved), labels[mine]

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the held-out pictures in order."""
        images, labels = (part[rank::world] for part in self.test)
        for start in range(0, len(labels), batch_size):
            stop = start + batch_size
            yield self._normalised(images[start:stop]), labels[start:stop]

    def _mean_colour(self) -> tuple[int, ...]:
        return tuple(round(255 * mean) for mean in self.layout.mean)

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = (
            torch.tensor(values, device=images.device).view(3, 1, 1)
            for values in (self.layout.mean, self.layout.std)
        )
        return (images.float() / 255 - mean) / std


class Cifar10(Cifar):
    """Ten classes: 50,000 pictures to train on and 10,000 to test.

    Example
    -------
    >>> data = Cifar10.load(Path("data"))              # data/cifar-10-batches-py/data_batch_1 ...
    >>> inputs, labels = next(data.train_batches(128, seed=0, epoch=0))
    """

    layout = Layout(
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test="test_batch",
        names="batches.meta",
        name_key="label_names",
        label_key="labels",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    )


class Cifar100(Cifar):
    """A hundred classes: 50,000 pictures to train on and 10,000 to test."""

    layout = Layout(
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        train=("train",),
        test="test",
        names="meta",
        name_key="fine_label_names",
        label_key="fine_labels",
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    )


def _tensors(pixels: Any, labels: Any, limit: int | None) -> tuple[Tensor, Tensor]:
    chosen = balanced(labels, limit)
    images = torch.from_numpy(pixels[chosen]).view(-1, 3, _SIDE, _SIDE)
    return images, torch.from_numpy(labels[chosen])


def reader(directory: Path | None, layout: Layout) -> tuple[Callable[[str], bytes], Path]:
    """Return a function that reads one of the files by name, and the directory or archive that has them."""
    if directory is None:
        raise InputError(
            "--data",
            expected=f"the directory that holds {layout.folder}/",
            found="none",
            fix="get the python version from https://www.cs.toronto.edu/~kriz/cifar.html and name its place",
        )
    for folder in (directory / layout.folder, directory):
        if (folder / layout.names).is_file():
            return partial(_read_file, folder), folder
    archive = directory if directory.name == layout.archive else directory / layout.archive
    if archive.is_file():
        return _archived(archive, layout), archive
    raise InputError(
        directory,
        expected=f"{layout.folder}/ or {layout.archive}",
        found="neither" if directory.is_dir() else "no such directory",
        fix="get the python version from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it there",
    )


def _read_file(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _bad(folder / name, error.strerror or str(error)) from error


def _archived(archive: Path, layout: Layout) -> Callable[[str], bytes]:
    wanted = {f"{layout.folder}/{name}": name for name in (*layout.train, layout.test, layout.names)}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name in wanted else None
                if file is not None:
                    found[wanted[member.name]] = file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise _bad(archive, f"an archive that cannot be read ({error})") from error

    def read(name: str) -> bytes:
        if name not in found:
            raise _bad(f"{archive}/{name}", "no such file")
        return found[name]

    return read


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where,
        expected="a file of CIFAR's python version",
        found=found,
        fix="get it again from https://www.cs.toronto.edu/~kriz/cifar.html",
    )
