"""Where the samples of a tar file lie, so that they can be read in any order."""

import hashlib
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.atomic import replacing
from bitfactor.data.tree import SUFFIXES
from bitfactor.errors import InputError


@dataclass(frozen=True)
class Table:
    """The samples of a shard in order: place of each image in bytes, class and key, all (N,)."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    classes: NDArray[np.int64]
    keys: NDArray[np.bytes_]

    @classmethod
    def of(cls, path: Path, cache: Path) -> "Table":
        """Look through the shard at `path`, or take what `cache` has since it was looked through.

        Raises
        ------
        InputError
            If it is no whole tar file, or a sample lacks its image or its class.
        """
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
    def _scanned(cls, path: Path) -> "Table":
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
            np.array([key.encode() for key in samples], np.bytes_),
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
