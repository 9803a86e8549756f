"""Image files in directories that are named after their classes, read without torch.

Which images a network is evaluated on, and which a trial with a few of them takes.
"""

import errno
import os
import re
import unicodedata
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import expect, expect_that
from bitfactor.common.errors import InputError

Holdout = Literal["test", "validation"]
"""What is evaluated on: the data set's own test part, or a fixed tenth of its training part. With
"validation" the test part stays unseen, so that settings can be chosen by what is found."""

Indices = NDArray[np.int64]


def validation_name(where: object) -> str:
    """Return what images are called that are taken from those for training, for use after their number."""
    return f"validation images (a tenth of the training images in {where})"


def expect_some(where: str, number: int) -> int:
    """Return `number`, which is to be 1 or more."""
    expect(where, number, int)
    expect_that(number >= 1, where, expected="1 or more", found=number, fix="choose how many are taken")
    return number


def balanced(labels: NDArray[np.integer], limit: int | None) -> Indices:
    """Return the indices of `limit` images in order: the first of each class, equally many if they last.

    Without a limit all of them.
    """
    if limit is None or expect_some("limit", limit) >= len(labels):
        return np.arange(len(labels))
    by_class = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[by_class], labels[by_class])
    place = np.empty(len(labels), np.int64)  # of an image among those of its class
    place[by_class] = np.arange(len(labels)) - first
    return np.sort(np.argsort(place, kind="stable")[:limit])


def warn_of_empty(where: object, classes: NDArray[np.integer], labels: Sequence[str]) -> None:
    """Warn where there are classes without an image to train on."""
    counts = np.bincount(classes, minlength=len(labels))
    empty = [label for label, count in zip(labels, counts, strict=True) if not count]
    if empty:
        warnings.warn(f"{where}: no image to train on is of the class {some(empty)}", stacklevel=3)


class Store(Protocol):
    """Encoded images with their classes, numbered from 0."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class."""
        ...

    def name(self, index: int) -> str:
        """Return what a message calls the image."""
        ...

    def class_of(self, index: int) -> int:
        """Return the class of an image."""
        ...

    def version(self, index: int) -> bytes:
        """Return 16 bytes that tell an encoded image from a later one in its place."""
        ...

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices in a random order that suits how the images lie."""
        ...

    def digest(self) -> str:
        """Return 16 hexadecimal digits that tell these images from others, wherever they lie."""
        ...


def version_of(name: bytes, file: os.stat_result) -> bytes:
    """Return a digest of 16 bytes of a name, and of a file's size and last change."""
    return blake2b(b"%d %d " % (file.st_size, file.st_mtime_ns) + name, digest_size=16).digest()


class VanishedError(InputError):
    """A whole directory of images is gone, or the disk that held it: nothing can stand for them."""


def refuse_if_vanished(path: str | bytes, error: OSError) -> None:
    """Raise VanishedError unless it is this one file that cannot be read."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory) or error.errno in _OF_THE_DISK:
        raise VanishedError(
            os.fsdecode(directory),
            expected="the images that were found there at the start",
            found=error.strerror or str(error),
            fix="bring them back; a training resumes by the same command",
        ) from error


_OF_THE_DISK = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT)


class CorruptImages:
    """Names and counts the images that could not be read; more than a fraction of them is an error.

    Parameters
    ----------
    where
        The data set, for messages.
    totals
        Part of the data set -> how many images it has.
    fraction
        The fraction of a part that may be corrupt.
    """

    def __init__(self, where: str, totals: dict[str, int], fraction: float) -> None:
        self.where, self.totals, self.fraction = where, totals, fraction
        self.found: dict[str, dict[str, str]] = {part: {} for part in totals}

    def __len__(self) -> int:
        return sum(len(names) for names in self.found.values())

    def add(self, part: str, name: str, reason: str) -> None:
        """Count an image, the first time with a warning."""
        names = self.found[part]
        if name in names:
            return
        names[name] = reason
        if len(names) > self.fraction * self.totals[part]:
            raise InputError(
                f"{self.where} ({part})",
                expected=f"at most {int(self.fraction * self.totals[part])} corrupt images of"
                f" {self.totals[part]:,} ({self.fraction:.1%})",
                found=f"{len(names)}, the last of them {reason}",
                fix="run `bitfactor check-data` on it and repair or remove what it lists",
            )
        warnings.warn(f"{reason} [left out, corrupt image {len(names)} of {part}]", stacklevel=2)


SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"))
_PARTS = {  # as `_part_of` reduces the names of directories; first what is tested on where there are several
    "validation": ("val", "valid", "validate", "validation", "dev", "devel", "development"),
    "test": ("test", "testing", "tst", "eval", "evaluate", "evaluation", "holdout"),
    "train": ("train", "training", "trn", "tr"),
}
_ROLES = {name: role for role, names in _PARTS.items() for name in names}
_ADDED = re.compile(r"(set|data|dataset|images|split)?[\W_\d]*$|[\W_]")


def _part_of(name: str) -> str | None:
    """Return which part of a data set a directory of this name holds: train, validation or test; or None."""
    return _ROLES.get(_ADDED.sub("", name.casefold()))


def composed(name: str) -> str:
    """Return a name in Unicode's NFC: the same one, whether or not a system takes its letters apart."""
    return unicodedata.normalize("NFC", name)


@dataclass(frozen=True)
class Tree:
    """What lies below a directory of class directories.

    `classes` maps the name of each, in Unicode's NFC, to the images below it, relative to `directory`.
    `loops` are links that lead back up, and `outside` links that lead out of the data. None are followed.
    `others` are files that are no images by their names.
    """

    directory: Path
    classes: dict[str, list[str]] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @classmethod
    def scan(cls, directory: Path, data: Path | None = None) -> "Tree":
        """Look through `directory`, a part of `data`; hidden files and directories do not count."""
        tree, resolved = cls(directory), directory.resolve()
        inside = os.path.realpath(data or directory)
        above = {_identity(place) for place in (resolved, *resolved.parents)}
        if not is_inside(directory, inside):
            tree.outside.append(".")
            return tree
        for entry in _entries(directory):
            if _is_directory(entry):
                found = tree.classes.setdefault(composed(entry.name), [])
                tree._look(entry, entry.name, found, above, inside)
            else:
                tree.others.append(entry.name)
        tree._expect_no_parts()
        return tree

    def _expect_no_parts(self) -> None:
        """Raise InputError where classes, or the directories in them, are called as parts of a data set."""
        levels = {"": {*self.classes}}
        for name, images in self.classes.items():
            split = (image.split("/") for image in images)
            levels[name] = {places[1] for places in split if len(places) > 2}
        for within, names in levels.items():
            called = sorted(name for name in names if _part_of(name))
            if len({_part_of(name) for name in called}) > 1:
                inside = f"name {self.directory / within}, or " if within else ""
                raise InputError(
                    self.directory,
                    expected="directories of classes, such as train/cat/1.jpg, val/cat/2.jpg",
                    found=f"{some(called)} within {within}" if within else f"the classes {some(called)}",
                    fix=f"{inside}put classes into train/ and val/",
                )

    def expect_inside(self) -> "Tree":
        """Return itself, unless links lead out of the data."""
        found = f"links that lead out of it, or nowhere: {some(self.outside)}"
        expected, fix = (
            "images that lie in the directory of the data",
            "copy what they lead to, or remove them",
        )
        expect_that(not self.outside, self.directory, expected=expected, found=found, fix=fix)
        return self

    def _look(
        self, entry: os.DirEntry[str], name: str, found: list[str], above: set[tuple[int, int]], inside: str
    ) -> None:
        identity = _identity(entry)
        if identity in above:
            self.loops.append(name)
            return
        if entry.is_symlink() and not is_inside(entry.path, inside):
            self.outside.append(name)
            return
        for child in _entries(entry):
            relative = f"{name}/{child.name}"
            if _is_directory(child):
                self._look(child, relative, found, above | {identity}, inside)
            elif Path(child.name).suffix.lower() not in SUFFIXES:
                self.others.append(relative)
            elif child.is_symlink() and not is_inside(child.path, inside):
                self.outside.append(relative)
            else:
                found.append(relative)

    @property
    def empty(self) -> list[str]:
        """Names of the classes without images."""
        return [name for name, images in self.classes.items() if not images]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()  # a link may lead to itself


def is_inside(path: str | os.PathLike[str], directory: str | os.PathLike[str]) -> bool:
    """Whether `path` stands in the directory, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _identity(directory: "os.PathLike[str]") -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def _entries(directory: "os.PathLike[str]") -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: composed(e.name))
    except OSError as error:
        raise InputError(
            os.fspath(directory),
            expected="a directory that can be read",
            found=error.strerror or str(error),
            fix="change its permissions or remove it",
        ) from error


def parts(directory: Path) -> tuple[Path, Path | None]:
    """Return the directories of the classes to train on and of those to test on, if they are apart."""
    found = parts_in(directory)
    if "train" not in found or not has_directories(found["train"]):
        return directory, None
    beside = [e.name for e in _entries(directory) if _part_of(e.name) is None and _holds_images(e)]
    if len(found) == 1 and beside:
        raise InputError(
            directory,
            expected="directories of classes, or of parts that hold classes, such as train and val",
            found=f"{found['train'].name}, which holds directories, beside {some(beside)}",
            fix="put all classes into train/, or name this class otherwise",
        )
    return found["train"], found.get("validation", found.get("test"))


def _holds_images(entry: os.DirEntry[str]) -> bool:
    files = (name for _, _, names in os.walk(entry) for name in names) if _is_directory(entry) else ()
    return any(Path(name).suffix.lower() in SUFFIXES for name in files)


def has_directories(directory: "os.PathLike[str]") -> bool:
    """Return whether there are directories in one, such as those of classes."""
    return any(map(_is_directory, _entries(directory)))


def parts_in(directory: Path) -> dict[str, Path]:
    """Return the directories that are called as parts: train, validation and test."""
    found: dict[str, Path] = {}
    for entry in _entries(directory):
        part = _part_of(entry.name) if _is_directory(entry) else None
        if part is None or (part in found and not has_directories(entry)):
            continue
        if part in found and has_directories(found[part]):
            raise InputError(
                directory,
                expected=f"one directory for {part}",
                found=f"{found[part].name} and {entry.name}",
                fix="remove or rename one",
            )
        found[part] = directory / entry.name
    return found


LOOKED_AT = 64  # images whose size and beginning, or contents, tell them from others of the same names
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
        try:
            with open(self._path(index), "rb", buffering=0) as file:
                return file.read(), int(self.classes[index])
        except OSError as error:
            refuse_if_vanished(self._path(index), error)
            raise

    def class_of(self, index: int) -> int:
        return int(self.classes[index])

    def version(self, index: int) -> bytes:
        """Return a digest of the file's name, its size and when it was last changed."""
        try:
            return version_of(bytes(self.names[index]), os.stat(self._path(index)))
        except OSError as error:
            refuse_if_vanished(self._path(index), error)
            raise

    def name(self, index: int) -> str:
        """Return the image's path."""
        return os.fsdecode(self._path(index))

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices, any order as likely as any other."""
        return generator.permutation(len(self))

    def digest(self) -> str:
        """Return a digest of all names, and of sizes and beginnings of some files, wherever they lie."""
        digest = blake2b(b"\0".join(self.names.tolist()), digest_size=8)
        for index in evenly(len(self), LOOKED_AT):
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


def existing(directory: Path | None, expected: str, fix: str = "name the place of the images") -> Path:
    """Return `directory`; InputError if none is named, or it is none."""
    if directory is None or not directory.is_dir():
        found = "none" if directory is None else "a file" if directory.exists() else "no such directory"
        raise InputError(directory or "--data", expected=expected, found=found, fix=fix)
    return directory


def evenly(number: int, most: int) -> Indices:
    """Return the places of `most` of so many, or of all, at even distances, with the first and the last."""
    return np.unique(np.linspace(0, number - 1, min(most, number)).astype(np.int64))


def some(names: Iterable[str]) -> str:
    """Return the first three of many names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
