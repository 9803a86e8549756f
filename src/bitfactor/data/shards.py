"""WebDataset shards: tar files of pictures and class numbers, here or at URLs."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bitfactor.data.presets import Preset
from bitfactor.data.shard import DESCRIPTION, Shard, is_url, user_cache, webdataset
from bitfactor.data.split import Holdout, Indices
from bitfactor.data.stored import StoredPictures
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

    def read(self, index: int) -> tuple[bytes, int]:
        """Return an encoded picture and its class."""
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

    def _place(self, index: int) -> tuple[Shard, int]:
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.shards[shard], index - int(self.starts[shard])


class Shards(StoredPictures):
    """Pictures in WebDataset shards, as a file `shards.json` describes them.

    ::

        {"train": "train-{000000..000146}.tar",
         "val": "https://example.org/val-{00..06}.tar",
         "labels": ["tench", "goldfish"],
         "samples": {"val-00.tar": 7143, "val-01.tar": 7143}}

    `train` and `val` are paths, relative to that file, or URLs (https, s3 and what else the library
    webdataset knows), with braces for many; without `val` the last tenth of the training shards is held out.
    `labels` names the classes that the numbers in the shards stand for. `samples` tells how many samples a
    shard has, by file name: URLs need it, since an epoch's length must be known before it is read, and a
    shard that holds another number is an error; local shards are counted when it is left out.

    Each process reads the samples that its part of a batch wants, so that each comes once in an epoch however
    many processes and workers there are, and an epoch can be entered anywhere. What lies at a URL is
    copied whole into `cache` when its first sample is wanted, by one process for all of the machine.
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
        cache: Path | None = None,
    ) -> "Shards":
        """Read `shards.json` in `directory`, and which samples the local shards have.

        Parameters
        ----------
        directory
            Where `shards.json` lies.
        preset, size, workers, max_corrupt
            As of `ImageFolder.load`.
        limit
            The first so many samples to train on and as many held out.
        holdout
            "validation" holds out the last tenth of the training shards in place of the test shards.
        cache
            Directory of copies and tables of contents, by default `bitfactor` in the user's cache directory.

        Raises
        ------
        InputError
            If the description or a shard is not as said above.
        """
        description, where = read_description(directory)
        labels = tuple(map(str, description["labels"]))
        train, test = (
            shards_of(description, part, where, cache or user_cache()) for part in ("train", "val")
        )
        if holdout == "validation" or not test:
            kept = len(train) - max(1, len(train) // 10)
            train, test = train[:kept], train[kept:]
        if not train:
            raise _bad(where, "two or more training shards, or val", "one shard")
        stores = ShardStore(train, limit), ShardStore(test, limit)
        stores = ShardStore(train, limit), ShardStore(test, limit)
        return cls.of(str(where), *stores, labels, preset, size, workers, max_corrupt)


def read_description(directory: Path | None) -> tuple[dict[str, Any], Path]:
    """Return what `shards.json` says, checked, and its path."""
    if directory is None:
        raise _bad(Path("--data"), f"the directory of {DESCRIPTION}", "none")
    path = directory / DESCRIPTION
    try:
        description = json.loads(path.read_text())
    except OSError as error:
        raise _bad(path, "a description of shards", error.strerror or str(error)) from error
    except ValueError as error:
        raise _bad(path, "a description of shards in JSON", str(error)) from error
    kinds = {"train": str, "val": str, "labels": list, "samples": dict}
    if not isinstance(description, dict) or not {"train", "labels"} <= description.keys() <= kinds.keys():
        found = ", ".join(description) if isinstance(description, dict) else type(description).__name__
        raise _bad(path, "the keys train, labels and if need be val, samples", found or "none")
    for key, value in description.items():
        if not isinstance(value, kinds[key]):
            raise _bad(path, f"{key} to be a {kinds[key].__name__}", type(value).__name__)
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


def _bad(where: Path, expected: str, found: str) -> InputError:
    return InputError(where, expected=expected, found=found, fix="see the documentation of Shards")
