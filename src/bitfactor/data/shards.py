"""WebDataset shards: tar files of images and class numbers, here or at URLs."""

from pathlib import Path

from bitfactor.checks import checked
from bitfactor.data.presets import Preset
from bitfactor.data.shard import ShardStore, bad_description, evaluation_shards, read_description, user_cache
from bitfactor.data.split import Holdout, expect_some
from bitfactor.data.stored import StoredImages


class Shards(StoredImages):
    """Images in WebDataset shards, as a file `shards.json` describes them.

    ::

        {"train": "train-{000000..000146}.tar",
         "val": "https://example.org/val-{00..06}.tar",
         "labels": ["tench", "goldfish"],
         "samples": {"val-00.tar": 7143, "val-01.tar": 7143}}

    `train` and `val` are paths, relative to that file, or URLs (https, s3 and what else the library
    webdataset knows), with braces for many; without `val` the last tenth of the training shards is tested on.
    `labels` names the classes that the numbers in the shards stand for. `samples` tells how many samples a
    shard has, by file name: URLs need it, since an epoch's length must be known before it is read, and a
    shard that holds another number is an error; local shards are counted when it is left out.

    Each process reads the samples that its part of a batch wants, so that each comes once in an epoch however
    many processes and workers there are, and an epoch can be entered anywhere. What lies at a URL is
    copied whole into `cache` when its first sample is wanted, by one process for all of the machine.
    """

    @classmethod
    @checked
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
        crop: bool = True,
        mirror: bool = True,
    ) -> "Shards":
        """Read `shards.json` in `directory`, and which samples the local shards have.

        Parameters
        ----------
        directory
            Where `shards.json` lies.
        preset, size, workers, max_corrupt, crop, mirror
            As of `ImageFolder.load`.
        limit
            The first so many samples to train on and as many in the test set.
        holdout
            "validation" takes the last tenth of the training shards in place of the test shards.
        cache
            Directory of copies and tables of contents, by default `bitfactor` in the user's cache directory.

        Raises
        ------
        InputError
            If the description or a shard is not as said above.
        """
        description, where = read_description(directory)
        labels = tuple(map(str, description["labels"]))
        cache = cache or user_cache()
        train, test, name = evaluation_shards(description, where, cache, holdout)
        if not train:
            raise bad_description(where, "two or more training shards, or val", "one shard")
        if limit is not None:
            expect_some("limit", limit)
        stores = ShardStore(train, limit), ShardStore(test, limit)
        return cls.of(str(where), *stores, labels, preset, size, workers, max_corrupt, crop, mirror, name)
