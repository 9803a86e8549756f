"""Pictures in directories that are named after their classes."""

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.data.presets import Preset
from bitfactor.data.split import Holdout, Indices, balanced
from bitfactor.data.stored import StoredPictures
from bitfactor.data.tree import Tree, parts
from bitfactor.errors import InputError


@dataclass(frozen=True)
class FileStore:
    """Picture files below a directory: `names` (N,) relative to it, encoded as the file system does."""

    directory: Path
    names: NDArray[np.bytes_]  # one block of memory, which worker processes share
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded picture and its class."""
        with open(os.path.join(os.fsencode(self.directory), self.names[index]), "rb", buffering=0) as file:
            return file.read(), int(self.classes[index])

    def name(self, index: int) -> str:
        """Return the picture's path."""
        return str(self.directory / os.fsdecode(bytes(self.names[index])))

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices, any order as likely as any other."""
        return generator.permutation(len(self))

    def chosen(self, indices: Indices) -> "FileStore":
        """Return the store of some of the pictures."""
        return FileStore(self.directory, self.names[indices], self.classes[indices])

    def split(self) -> tuple["FileStore", "FileStore"]:
        """Return nine tenths and one tenth of each class.

        The tenth are those whose names have the smallest checksums, so that it hardly changes when
        pictures are added. A class of one picture stays whole in the first part.
        """
        checksums = np.array([zlib.crc32(bytes(name)) for name in self.names])
        order = np.lexsort((checksums, self.classes))
        ordered = self.classes[order]
        sizes = np.bincount(self.classes)
        held = np.where(sizes > 1, np.maximum(1, np.round(sizes / 10)), 0)
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        out = place < held[ordered]
        return self.chosen(np.sort(order[~out])), self.chosen(np.sort(order[out]))


class ImageFolder(StoredPictures):
    """Pictures in class directories: ImageNet's `train/` and `val/`, or any of the user's own.

    Example
    -------
    >>> data = ImageFolder.load(Path("imagenet"), preset="paper")   # imagenet/train/n01440764/1.JPEG ...
    >>> data = ImageFolder.load(Path("flowers"), size=128)          # flowers/rose/1.jpg ...
    """

    @classmethod
    def load(
        cls,
        directory: Path | None,
        preset: Preset = "standard",
        size: int = 224,
        limit: int | None = None,
        holdout: Holdout = "test",
        workers: int | None = None,
        max_corrupt: float = 0.01,
    ) -> "ImageFolder":
        """Look which pictures there are.

        Parameters
        ----------
        directory
            With `train/` and `val/` (or `valid`, `validation`, `test`), or with the class directories
            themselves: then a fixed tenth of each class is held out. A class's pictures may lie in
            directories below its own; links are followed, but not back up.
        preset, size
            How pictures become inputs, of `size` x `size` pixels.
        limit
            At most so many pictures to train on and as many held out, classes in equal shares.
        holdout
            "validation" holds out a fixed tenth of the training pictures in place of the test pictures.
        workers
            Processes that read and decode: 0 for none, by default one for each core.
        max_corrupt
            The fraction of the pictures that may be corrupt.

        Raises
        ------
        InputError
            If there are no classes, one has no pictures, or held-out ones are of no known class.
        """
        train, test, labels = _stores(_existing(directory))
        if holdout == "validation":
            train, test = train.split()
        train, test = (store.chosen(balanced(store.classes, limit)) for store in (train, test))
        return cls.of(str(directory), train, test, labels, preset, size, workers, max_corrupt)


def _existing(directory: Path | None) -> Path:
    if directory is None or not directory.is_dir():
        raise InputError(
            directory or "--data",
            expected="a directory with train/ and val/, or with one directory of pictures for each class",
            found="no such directory" if directory else "none",
            fix="name the place of the pictures",
        )
    return directory


def _stores(directory: Path) -> tuple[FileStore, FileStore, tuple[str, ...]]:
    train_directory, test_directory = parts(directory)
    tree = Tree.scan(train_directory)
    labels = tuple(tree.classes)
    if len(labels) < 2 or tree.empty:
        raise InputError(
            train_directory,
            expected="a directory of pictures for each of two or more classes",
            found=f"no pictures in {_some(tree.empty)}" if len(labels) > 1 else _some(labels) or "none",
            fix="add pictures or remove the directory; `bitfactor check-data` tells more",
        )
    store = file_store(tree, labels)
    if test_directory is None:
        return (*store.split(), labels)
    test = Tree.scan(test_directory)
    unknown = sorted(set(test.classes) - set(labels))
    if unknown or len(test.empty) == len(test.classes):
        raise InputError(
            test_directory,
            expected=f"pictures of the classes in {train_directory}",
            found=f"the class {_some(unknown)}" if unknown else "none",
            fix="let both have the same class directories",
        )
    return store, file_store(test, labels), labels


def file_store(tree: Tree, labels: tuple[str, ...]) -> FileStore:
    """Return the pictures of a tree, with the place of their class in `labels`."""
    names = [os.fsencode(name) for pictures in tree.classes.values() for name in pictures]
    number = {label: i for i, label in enumerate(labels)}
    classes = [number[label] for label, pictures in tree.classes.items() for _ in pictures]
    return FileStore(tree.directory, np.array(names, np.bytes_), np.array(classes, np.int64))


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
