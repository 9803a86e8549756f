"""Directories of images, named after their classes."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from bitfactor.errors import InputError

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"))
TEST_NAMES = ("val", "valid", "validation", "test")


@dataclass(frozen=True)
class Tree:
    """What lies below a directory of class directories.

    `classes` maps the name of each to the images below it, relative to `directory`; `loops` are links that
    lead back up, which are not followed; `others` are files that are no images by their names.
    """

    directory: Path
    classes: dict[str, list[str]] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @classmethod
    def scan(cls, directory: Path) -> "Tree":
        """Look through `directory`; hidden files and directories do not count."""
        tree, resolved = cls(directory), directory.resolve()
        above = {_identity(place) for place in (resolved, *resolved.parents)}
        for entry in _entries(directory):
            if _is_directory(entry):
                tree.classes[entry.name] = []
                tree._look(entry, entry.name, tree.classes[entry.name], above)
            else:
                tree.others.append(entry.name)
        return tree

    def _look(
        self, entry: os.DirEntry[str], name: str, found: list[str], above: set[tuple[int, int]]
    ) -> None:
        identity = _identity(entry)
        if identity in above:
            self.loops.append(name)
            return
        for child in _entries(entry):
            relative = f"{name}/{child.name}"
            if _is_directory(child):
                self._look(child, relative, found, above | {identity})
            elif Path(child.name).suffix.lower() in SUFFIXES:
                found.append(relative)
            else:
                self.others.append(relative)

    @property
    def empty(self) -> list[str]:
        """Names of the classes without images."""
        return [name for name, images in self.classes.items() if not images]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()  # a link may lead to itself


def _identity(directory: "os.PathLike[str]") -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino


def _entries(directory: "os.PathLike[str]") -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            os.fspath(directory),
            expected="a directory that can be read",
            found=error.strerror or str(error),
            fix="change its permissions or remove it",
        ) from error


def parts(directory: Path) -> tuple[Path, Path | None]:
    """Return the directories of the classes to train on and of those to test on, if they are apart."""
    train = directory / "train"
    if not train.is_dir() or not any(_is_directory(entry) for entry in _entries(train)):
        return directory, None
    apart = [directory / name for name in TEST_NAMES if (directory / name).is_dir()]
    return train, apart[0] if apart else None
