"""Image files in directories that are named after their classes, read without torch."""

import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.data.split import Indices
from bitfactor.data.tree import Tree
from bitfactor.errors import InputError

_LOOKED_AT = 64  # files whose size and beginning tell them from others of the same names
_BEGINNING = 4096  # bytes


@dataclass(frozen=True)
class FileStore:
    """Image files below a directory: `names` (N,) relative to it, encoded as the file system does."""

    directory: Path
    names: NDArray[np.bytes_]  # one block of memory, which worker processes share
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class."""
        with open(self._path(index), "rb", buffering=0) as file:
            return file.read(), int(self.classes[index])

    def name(self, index: int) -> str:
        """Return the image's path."""
        return str(self.directory / os.fsdecode(bytes(self.names[index])))

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices, any order as likely as any other."""
        return generator.permutation(len(self))

    def digest(self) -> str:
        """Return a digest of all names, and of sizes and beginnings of some files, wherever they lie."""
        digest = blake2b(b"\0".join(self.names.tolist()), digest_size=8)
        for index in np.unique(np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self))).astype(int)):
            try:
                with open(self._path(int(index)), "rb", buffering=0) as file:
                    digest.update(b"%d" % os.fstat(file.fileno()).st_size + file.read(_BEGINNING))
            except OSError:
                digest.update(b"unreadable")
        return digest.hexdigest()

    def chosen(self, indices: Indices) -> "FileStore":
        """Return the store of some of the images."""
        return FileStore(self.directory, self.names[indices], self.classes[indices])

    def split(self) -> tuple["FileStore", "FileStore"]:
        """Return nine tenths and one tenth of each class.

        The tenth are those whose names have the smallest checksums, so that it hardly changes when
        images are added. A class of one image stays whole in the first part.
        """
        checksums = np.array([zlib.crc32(bytes(name)) for name in self.names])
        order = np.lexsort((checksums, self.classes))
        ordered = self.classes[order]
        sizes = np.bincount(self.classes)
        held = np.where(sizes > 1, np.maximum(1, np.round(sizes / 10)), 0)
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        out = place < held[ordered]
        return self.chosen(np.sort(order[~out])), self.chosen(np.sort(order[out]))

    def _path(self, index: int) -> bytes:
        return os.path.join(os.fsencode(self.directory), bytes(self.names[index]))


def file_store(tree: Tree, labels: Iterable[str]) -> FileStore:
    """Return the images of a tree, with the place of their class in `labels`."""
    number: Mapping[str, int] = {label: i for i, label in enumerate(labels)}
    names = [os.fsencode(name) for images in tree.classes.values() for name in images]
    classes = [number[label] for label, images in tree.classes.items() for _ in images]
    return FileStore(tree.directory, np.array(names, np.bytes_), np.array(classes, np.int64))


def existing(directory: Path | None, expected: str) -> Path:
    """Return `directory`.

    Raises
    ------
    InputError
        If there is none: `expected` says what is to be there.
    """
    if directory is None or not directory.is_dir():
        found = "none" if directory is None else "a file" if directory.exists() else "no such directory"
        raise InputError(
            directory or "--data", expected=expected, found=found, fix="name the place of the images"
        )
    return directory


def some(names: Iterable[str]) -> str:
    """Return the first three of many names, and how many more there are.

    >>> some(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
