"""The samples of WebDataset shards, read without torch."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from bitfactor.data.shard import DESCRIPTION, Shard, is_url, webdataset
from bitfactor.data.split import Holdout, Indices, validation_name
from bitfactor.errors import InputError

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
    if directory is None:
        raise bad_description(Path("--data"), f"the directory of {DESCRIPTION}", "none")
    path = directory / DESCRIPTION
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
    places = [
        place if is_url(place) else str(where.parent / place)
        for place in webdataset().shardlists.expand_urls(description[part])
    ]
    samples, classes = description.get("samples", {}), len(description["labels"])
    return tuple(Shard(place, cache, samples.get(place.rpartition("/")[2]), classes) for place in places)


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
