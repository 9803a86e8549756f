"""One tar file of samples, here or at a URL."""

import fcntl
import hashlib
import os
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

from bitfactor.atomic import replacing
from bitfactor.data.tar import Table
from bitfactor.errors import InputError, imported

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
    def table(self) -> Table:
        """What is in it and where."""
        table = Table.of(self.path, self.cache)
        if self._said not in (None, len(table.keys)):
            raise self._bad(f"{self._said} samples, as {DESCRIPTION} says", str(len(table.keys)))
        if len(table.keys) and not 0 <= table.classes.min() <= table.classes.max() < self.classes:
            wrong = table.classes.max() if table.classes.min() >= 0 else table.classes.min()
            raise self._bad(f"classes from 0 to {self.classes - 1}", str(wrong))
        return table

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded image and its class."""
        table = self.table
        with open(self.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), table.sizes[index], table.offsets[index]), int(
                table.classes[index]
            )

    def _bad(self, expected: str, found: str) -> InputError:
        return InputError(self.place, expected=expected, found=found, fix="correct the one or the other")


def fetched(url: str, cache: Path) -> Path:
    """Return the path of a copy of `url` in `cache`, whole; processes that want the same wait for the first.

    Raises
    ------
    InputError
        If it cannot be fetched.
    """
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
    """Tell a URL, or what else the library webdataset opens, from a path."""
    return "://" in place or place.startswith("pipe:")


def user_cache() -> Path:
    """Return the directory of what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bitfactor"
