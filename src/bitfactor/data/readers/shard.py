"""Tar files of samples, here or at a URL: their entries, one shard, and many as one store."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import replacing
from bitfactor.data.readers.files import (
    SUFFIXES,
    Holdout,
    Indices,
    existing,
    is_inside,
    refuse_if_vanished,
    validation_name,
    version_of,
)


@dataclass(frozen=True)
class ShardTable:
    """The samples of a shard in order: place of each image in bytes, class and key, all (N,)."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    classes: NDArray[np.int64]
    keys: NDArray[np.bytes_]

    @classmethod
    def of(cls, path: Path, cache: Path) -> "ShardTable":
        """Look through the shard at `path`, or take what `cache` has since it was looked through."""
        try:
            status = path.stat()
        except OSError as error:
            raise _bad(path, error.strerror or str(error)) from error
        version = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
        saved = cache / f"{hashlib.sha256(version.encode()).hexdigest()[:32]}.npz"
        with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(saved) as columns:
            return cls(*(columns[field.name] for field in fields(cls)))
        table = cls._scanned(path)
        with suppress(InputError), replacing(saved) as temporary, temporary.open("wb") as file:
            np.savez(
                file, **vars(table)
            )  # saves time next time; a cache that cannot be written does not matter
        return table

    @classmethod
    def _scanned(cls, path: Path) -> "ShardTable":
        samples: dict[str, dict[str, Any]] = {}
        try:
            with tarfile.open(path, "r:") as tar, path.open("rb") as file:
                for key, extension, member in _members(tar):
                    sample = samples.setdefault(key, {})
                    if "." + extension in SUFFIXES:
                        sample["image"] = member
                    elif extension == "cls":
                        file.seek(member.offset_data)
                        sample["class"] = int(file.read(member.size))
        except (OSError, tarfile.TarError) as error:
            raise _bad(path, f"a file that cannot be read ({error})") from error
        except ValueError as error:
            raise _bad(path, f"in {key}.cls no whole number") from error
        for key, sample in samples.items():
            if sample.keys() != {"image", "class"}:
                raise _bad(path, f"{key} with {' and '.join(sample) or 'neither'} alone")
        return cls(
            np.array([sample["image"].offset_data for sample in samples.values()], np.int64),
            np.array([sample["image"].size for sample in samples.values()], np.int64),
            np.array([sample["class"] for sample in samples.values()], np.int64),
            np.array([os.fsencode(key) for key in samples], np.bytes_),
        )


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Yield key and extension of each file: its name up to the first dot, and after it."""
    for member in tar:
        folder, _, name = member.name.rpartition("/")
        if member.isfile() and not name.startswith("."):
            key, _, extension = name.partition(".")
            yield f"{folder}/{key}" if folder else key, extension.lower(), member


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="a shard: a tar file of samples NAME.jpg (or other image) with NAME.cls, a class's number",
        found=found,
        fix="write or download it again",
    )


DESCRIPTION = "shards.json"


class Shard:
    """One tar file.

    Parameters
    ----------
    place
        Its path or URL.
    cache
        Directory for the copy of what lies at a URL, and for tables of contents.
    samples
        How many samples it is said to have.
    classes
        Number of classes.
    """

    def __init__(self, place: str, cache: Path, samples: int | None, classes: int) -> None:
        self.place, self.cache, self.classes = place, cache, classes
        self._said = samples
        if is_url(place) and samples is None:
            raise InputError(
                place,
                expected=f'the number of its samples under "samples" in {DESCRIPTION}',
                found="none",
                fix="write it there: an epoch's length must be known before all shards are read",
            )

    def __len__(self) -> int:
        return len(self.table.keys) if self._said is None else self._said

    @cached_property
    def path(self) -> Path:
        """Where the tar file lies; fetched from its URL by the first process that wants it."""
        return fetched(self.place, self.cache) if is_url(self.place) else Path(self.place)

    @cached_property
    def table(self) -> ShardTable:
        """What is in it and where."""
        table = ShardTable.of(self.path, self.cache)
        if self._said not in (None, len(table.keys)):
            raise self._bad(f"{self._said} samples, as {DESCRIPTION} says", str(len(table.keys)))
        if len(table.keys) and not 0 <= table.classes.min() <= table.classes.max() < self.classes:
            wrong = table.classes.max() if table.classes.min() >= 0 else table.classes.min()
            raise self._bad(f"classes from 0 to {self.classes - 1}", str(wrong))
        return table

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class."""
        table = self.table
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), table.sizes[index], table.offsets[index])
        except OSError as error:
            refuse_if_vanished(os.fspath(self.path), error)
            raise
        return data, int(table.classes[index])

    def expect_as_described(self) -> None:
        """Raise InputError where a local one holds others than told; one at a URL waits until wanted."""
        if not is_url(self.place):
            _ = self.table

    def _bad(self, expected: str, found: str) -> InputError:
        return InputError(self.place, expected=expected, found=found, fix="correct the one or the other")


def fetched(url: str, cache: Path) -> Path:
    """Return the path of a whole copy of `url` in `cache`; processes that want the same wait for one."""
    path = cache / f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{url.rpartition('/')[2]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with replacing(path) as temporary, temporary.open("wb") as file:
                try:
                    with webdataset().gopen(url, "rb") as source:
                        shutil.copyfileobj(source, file, 1 << 20)
                except (OSError, ValueError) as error:
                    raise InputError(
                        url,
                        expected="a shard that can be fetched",
                        found=str(error),
                        fix="check the address and the network",
                    ) from error
    return path


def webdataset() -> Any:
    """Return the library, which only shards need."""
    return imported("webdataset", "shards", "shards")


def is_url(place: str) -> bool:
    """Tell a URL from a path."""
    return "://" in place


def user_cache() -> Path:
    """Return the directory of what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitfactor"


_MIXED = 16


@dataclass(frozen=True)
class ShardStore:
    """The samples of many shards, in their order; at most `limit` of them."""

    shards: tuple[Shard, ...]
    limit: int | None = None

    @cached_property
    def starts(self) -> Indices:
        """Index of the first sample of each shard, and at the end the number of all samples."""
        return np.cumsum([0, *(len(shard) for shard in self.shards)])

    def __len__(self) -> int:
        return int(self.starts[-1]) if self.limit is None else min(int(self.starts[-1]), self.limit)

    @property
    def classes(self) -> Indices:
        """Class of each sample, (N,); fetches shards at URLs."""
        return np.concatenate([shard.table.classes for shard in self.shards])[: len(self)]

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class."""
        shard, place = self._place(index)
        return shard.read(place)

    def class_of(self, index: int) -> int:
        """Return the class of a sample."""
        shard, place = self._place(index)
        return int(shard.table.classes[place])

    def version(self, index: int) -> bytes:
        """Return a digest of the shard's name, its size, when it was last changed, and the place in it."""
        shard, place = self._place(index)
        return version_of(b"%d %s" % (place, os.path.basename(shard.place).encode()), shard.path.stat())

    def name(self, index: int) -> str:
        """Return the shard and the sample's key."""
        shard, place = self._place(index)
        return f"{shard.place}: {shard.table.keys[place].decode(errors='replace')}"

    def shuffled(self, generator: np.random.Generator) -> Indices:
        """Return all indices: the shards in random order, the samples of 16 at a time mixed.

        So only few shards are read, or fetched, at the same time.
        """
        order = generator.permutation(len(self.shards))
        groups = []
        for first in range(0, len(order), _MIXED):
            ranges = [np.arange(*self.starts[shard : shard + 2]) for shard in order[first : first + _MIXED]]
            group = np.concatenate(ranges)
            groups.append(generator.permutation(group[group < len(self)]))
        return np.concatenate(groups)

    def digest(self) -> str:
        """Return a digest of the shards' names and sizes; of those at URLs, of their names alone."""
        digest = blake2b(b"%d" % len(self), digest_size=8)
        for shard in self.shards:
            digest.update(os.path.basename(shard.place).encode())
            if not is_url(shard.place):
                with suppress(OSError):
                    digest.update(b"%d" % shard.path.stat().st_size)
        return digest.hexdigest()

    def _place(self, index: int) -> tuple[Shard, int]:
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.shards[shard], index - int(self.starts[shard])


def read_description(directory: Path | None) -> tuple[dict[str, Any], Path]:
    """Return what `shards.json` says, checked, and its path."""
    path = existing(directory, f"the directory of {DESCRIPTION}") / DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except OSError as error:
        raise bad_description(path, "a description of shards", error.strerror or str(error)) from error
    except ValueError as error:
        raise bad_description(path, "a description of shards in JSON", str(error)) from error
    kinds = {"train": str, "val": str, "labels": list, "samples": dict}
    if not isinstance(description, dict) or not {"train", "labels"} <= description.keys() <= kinds.keys():
        found = ", ".join(description) if isinstance(description, dict) else type(description).__name__
        raise bad_description(path, "the keys train, labels and if need be val, samples", found or "none")
    for key, value in description.items():
        if not isinstance(value, kinds[key]):
            raise bad_description(path, f"{key} to be a {kinds[key].__name__}", type(value).__name__)
    return description, path


def shards_of(description: dict[str, Any], part: str, where: Path, cache: Path) -> tuple[Shard, ...]:
    """Return the shards that the description names as `part`, none if it does not."""
    if part not in description:
        return ()
    stated = _expanded(description[part], where)
    for place in stated:
        if place.strip().startswith("pipe:"):  # webdataset would run it
            raise bad_description(where, "files and URLs of shards", f"the command {place!r}")
        if not is_url(place) and not is_inside(where.parent / place, where.parent):
            raise bad_description(where, f"files below {where.parent}, and URLs", f"{place!r}, which is not")
    places = [place if is_url(place) else str(where.parent / place) for place in stated]
    samples, classes = description.get("samples", {}), len(description["labels"])
    return tuple(Shard(place, cache, samples.get(place.rpartition("/")[2]), classes) for place in places)


_MOST_SHARDS = 1 << 16
_BRACES = re.compile(r"\{([^{}]*)\}")


def _expanded(text: str, where: Path) -> list[str]:
    """Return the places that a text with braces, such as train-{00..99}.tar, stands for."""
    try:
        count, rest = 1, text
        while (braces := _BRACES.search(rest)) is not None:  # the innermost first
            count *= _length(braces[1])
            rest = rest.replace(braces[0], "x", 1)
            if count > _MOST_SHARDS:
                raise ValueError(f"braces for more than {_MOST_SHARDS} shards")
        return list(webdataset().shardlists.expand_urls(text))
    except (IndexError, ValueError) as error:
        raise bad_description(where, "files and URLs of shards", str(error)) from error


def _length(braces: str) -> int:
    """Return how many texts a pair of braces stands for, or more: 00..99, a..f, or a,b,c."""
    first, *last = braces.split("..")
    if not last:
        return 1 + braces.count(",")
    return abs(int(last[0]) - int(first)) + 1 if first.lstrip("-").isdigit() else 1 << 8


def evaluation_shards(
    description: dict[str, Any], where: Path, cache: Path, holdout: Holdout
) -> tuple[tuple[Shard, ...], tuple[Shard, ...], str]:
    """Return the shards to train on, those to evaluate on and what their images are called."""
    train, test = (shards_of(description, part, where, cache) for part in ("train", "val"))
    if holdout == "test" and test:
        return train, test, f"test images in {where.parent} ({description['val']})"
    kept = len(train) - max(1, len(train) // 10)
    return train[:kept], train[kept:], validation_name(where.parent)


def bad_description(where: Path, expected: str, found: str) -> InputError:
    """Return the error about a description that cannot be used."""
    return InputError(where, expected=expected, found=found, fix="see the documentation of Shards")
