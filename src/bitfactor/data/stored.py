"""Data sets of images, in class directories or shards, that are read while training goes on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.common.checks import check_fields, checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.data.augment import (
    DRAWS,
    LEAST_AREA,
    RANDOM,
    Augmentation,
    Preset,
    augmentation_of,
    input_spec,
    rand_augment,
)
from bitfactor.data.in_memory import Batch, DataSet, options_of
from bitfactor.data.readers.evaluation_set import Drawn, PreparedBatch
from bitfactor.data.readers.files import (
    CorruptImages,
    FileStore,
    Holdout,
    Indices,
    Store,
    Tree,
    balanced,
    evenly,
    existing,
    expect_some,
    file_store,
    parts,
    some,
    validation_name,
    warn_of_empty,
)
from bitfactor.data.readers.kept import KeptImages, decoded_image, keep_images
from bitfactor.data.readers.shard import (
    DESCRIPTION,
    ShardStore,
    bad_description,
    evaluation_shards,
    read_description,
    user_cache,
)
from bitfactor.data.readers.workers import in_order, usable_workers
from bitfactor.format import InputSpec
from bitfactor.pose.images import decode_about, shrunk, stated_size

STANDARD = "the preset 'standard'"
_TRIES = 20  # images in a row that may be corrupt


@dataclass(frozen=True)
class FolderOptions:
    """Images in class directories, or in WebDataset shards where the directory has a `shards.json`."""

    preset: Preset = "standard"
    """How training images are cropped: at random places of 256x256, or random parts, mirrored."""
    size: int = 224
    """Side of an input in pixels."""
    holdout: Holdout = "test"
    """What is evaluated on: the test images, or a tenth of the training images, to choose settings by."""
    crop: bool = True
    """Crop training images at random, as the preset does; if not, they are cropped in the centre."""
    crop_area: float = LEAST_AREA
    """Least fraction of its area that a random part shows, where the preset takes one: standard."""
    mirror: bool = True
    """Mirror half of the training images, where the preset does: standard."""
    rand_augment: int = 0
    """Strength, 1 to 10, of two operations of RandAugment on each training image; 0 is off."""
    decoded_cache: float = 0.0
    """GiB of disk, at most, for decoded images, in the user's cache directory. With 0, or if they need more,
    each epoch decodes its images. Training images are shrunk first, to 4/3 of the area that a test image is
    resized to."""
    classes_in_files: ClassVar[bool] = True  # so a network can be evaluated on any directory of its classes

    def __post_init__(self) -> None:
        check_fields(self)
        area, strength = self.crop_area, self.rand_augment
        expect_that(0 < area <= 1, "crop_area", expected="a fraction above 0, 1 at most", found=area)
        expect_that(0 <= strength <= 10, "rand_augment", expected="a strength from 0 to 10", found=strength)
        expect_that(
            self.decoded_cache >= 0, "decoded_cache", expected="0 or more GiB", found=self.decoded_cache
        )

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of an input."""
        return 3, self.size, self.size

    def idle(self) -> dict[str, str]:
        """Return the options that change nothing beside these, and what each of them needs."""
        ours = ("crop_area", "mirror") if self.preset == "paper" else ()
        return {**({} if self.crop else {"crop_area": "crops at random"}), **dict.fromkeys(ours, STANDARD)}

    def __call__(self, directory: Path | None) -> DataSet:
        """Look which images there are."""
        sharded = directory is not None and (directory / DESCRIPTION).exists()
        return (Shards if sharded else ImageFolder).load(directory, self)


@dataclass(frozen=True)
class StoredImages(ABC):
    """Images of any size in a store, to train on and to test on.

    A training image that cannot be read is replaced by the next in the epoch's order. A test image is left
    out. `corrupt` warns about each, counts them and raises an error if they are too many.

    `workers` processes read and decode; batches are normalised on `device`. `test_name` says which images
    the test images are.
    """

    train: Store
    test: Store
    labels: tuple[str, ...]
    options: FolderOptions
    corrupt: CorruptImages
    workers: int
    device: torch.device
    test_name: str = "test images"
    cache: Path | None = None
    defaults: ClassVar[FolderOptions] = FolderOptions()

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        options: FolderOptions | None = None,
        *,
        limit: int | None = None,
        workers: int | None = None,
        max_corrupt: float = 0.01,
        cache: Path | None = None,
        **named: Any,
    ) -> Self:
        """Look which images there are.

        Parameters
        ----------
        directory
            The one that holds them.
        options
            What else there is to choose; options can be named one by one as well.
        limit
            At most so many images to train on and as many in the test set. Of class directories they are
            classes equally often, of shards the first ones.
        workers
            Processes that read and decode: 0 for none, by default one for each core.
        max_corrupt
            The fraction of the images that may be corrupt.
        cache
            Directory of copies of shards and of decoded images, by default `bitfactor` in the user's cache
            directory.
        """
        chosen = options_of(options, cls.defaults, named)
        expect_some("size", chosen.size)
        cache = cache or user_cache()
        where, train, test, labels, name = cls._found(directory, chosen.holdout, limit, cache)
        expect_that(workers is None or workers >= 0, "workers", expected="0 or more", found=workers)
        rate = 0 <= max_corrupt <= 1
        expect_that(rate, "max_corrupt", expected="a fraction from 0 to 1", found=max_corrupt)
        expect_that(len(train) > 0, where, expected="images to train on", found=0)
        expect_that(len(test) > 0, where, expected="images to evaluate on", found=0)
        totals = {"train": len(train), "test": len(test)}
        return cls(
            train,
            test,
            labels,
            chosen,
            CorruptImages(where, totals, max_corrupt),
            usable_workers() if workers is None else workers,
            torch.device("cpu"),
            name,
            cache,
        )

    @classmethod
    @abstractmethod
    def _found(
        cls, directory: Path | None, holdout: Holdout, limit: int | None, cache: Path
    ) -> tuple[str, Store, Store, tuple[str, ...], str]:
        """Return where they are, images to train on and to test on, classes, and what the latter are."""

    @property
    def input_spec(self) -> InputSpec:
        """How an image becomes an input."""
        return input_spec(self.options.size, self.options.preset)

    @property
    def area(self) -> int:
        """Pixels of a training image that is kept, at most; 0 where none is."""
        height, width = self.input_spec.resize
        return height * width * 4 // 3 if self.options.decoded_cache else 0

    @cached_property
    def kept(self) -> dict[str, KeptImages]:
        """Where decoded images are kept, those to train on and those to test on; empty if too many."""
        if not self.options.decoded_cache:
            return {}
        prepared = self.test, prod(self.input_spec.size)
        parts = {"train": (self.train, self.area), self._prepared: prepared}
        directory = (self.cache or user_cache()) / "images"
        return keep_images(directory, parts, self.options.decoded_cache)

    @property
    def _prepared(self) -> str:
        return f"test-{self.options.preset}"

    @property
    def note(self) -> str:
        """What is to be said before a training."""
        size = sum(kept.size for kept in self.kept.values()) / 2**30
        where = [kept.path.parent for kept in self.kept.values()]
        return f"decoded images are kept in {where[0]}, {size:.2f} GiB" if where else ""

    def usual_side(self, images: int) -> int:
        """Return the median shorter side of some images to train on; 0 where no header states it."""
        few = evenly(len(self.train), images)
        return int(np.median([min(stated_size(self.train.read(int(one))[0])) for one in few]))

    def to(self, device: torch.device | str) -> Self:
        """Return the same data set with batches on `device`."""
        return replace(self, device=torch.device(device))

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train) // expect_some("batch_size", batch_size)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, shuffled and augmented."""
        expect_some("batch_size", batch_size)
        order = self.train.shuffled(np.random.default_rng((seed, epoch, 0)))
        chosen = self.options
        augment = augmentation_of(
            chosen.preset, crop=chosen.crop, mirror=chosen.mirror, area=chosen.crop_area
        )
        work = _TrainBatch(
            self.train,
            order,
            augment,
            self.input_spec,
            (seed, epoch),
            batch_size,
            rank,
            world,
            self.kept.get("train"),
            self.area,
            chosen.rand_augment,
        )
        shape = len(range(rank, batch_size, world)), *self.input_spec.size, 3
        numbers = range(start, self.steps(batch_size))
        for images, drawn in in_order(work, numbers, shape, np.uint8, self.workers):
            labels = self._labels("train", drawn)
            yield self._normalised(torch.from_numpy(images).permute(0, 3, 1, 2)), labels

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order."""
        mine = range(rank, len(self.test), world)
        expect_some("batch_size", batch_size)
        work = PreparedBatch(self.test, self.input_spec, batch_size, mine, self.kept.get(self._prepared))
        for images, drawn in in_order(work, range(len(work)), work.shape, np.float32, self.workers):
            labels = self._labels("test", drawn)
            if len(labels):
                yield torch.tensor(images[: len(labels)], device=self.device), labels

    def _labels(self, part: str, drawn: Drawn) -> Tensor:
        labels, corrupt = drawn
        for name, message in corrupt:
            self.corrupt.add(part, name, message)
        return torch.tensor(labels, dtype=torch.int64, device=self.device)

    def _normalised(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) in any layout -> the same, contiguous, as float32."""
        mean, std = (
            torch.tensor(values, device=self.device).view(-1, 1, 1) * 255
            for values in (self.input_spec.mean, self.input_spec.std)
        )
        if self.device.type != "cpu":
            moved = images.to(self.device).to(torch.float32, memory_format=torch.contiguous_format)
            return moved.sub_(mean).div_(std)
        # numpy's memory comes in huge pages, and one image fits into a cache: 0.1 ms each in place of 0.3.
        inputs = torch.from_numpy(np.empty(images.shape, np.float32))
        for image, out in zip(images, inputs, strict=True):
            out.copy_(image).sub_(mean).div_(std)
        return inputs


@dataclass(frozen=True)
class _TrainBatch:
    """Fills the part of a batch that process `rank` of `world` gets, (N, H, W, 3)."""

    store: Store
    order: Indices
    augment: Augmentation
    spec: InputSpec
    key: tuple[int, int]
    batch_size: int
    rank: int
    world: int
    kept: KeptImages | None
    area: int
    rand_augment: int

    def __call__(self, number: int, out: NDArray[np.uint8]) -> Drawn:
        first = number * self.batch_size
        labels, corrupt = list[int](), list[tuple[str, str]]()
        generator = np.random.default_rng((*self.key, number + 1))
        draws = generator.random((self.batch_size, DRAWS))
        more = generator.random((self.batch_size, RANDOM))
        for slot, i in enumerate(range(self.rank, self.batch_size, self.world)):
            labels.append(self._write(first + i, draws[i], out[slot], corrupt))
            if self.rand_augment:
                rand_augment(out[slot], self.rand_augment, more[i])
        return labels, corrupt

    def _write(
        self,
        position: int,
        draws: NDArray[np.float64],
        out: NDArray[np.uint8],
        corrupt: list[tuple[str, str]],
    ) -> int:
        # On return the image's memory is free again: the next one is decoded to where the cache has it.
        for attempt in range(position, position + _TRIES):
            index = int(self.order[attempt % len(self.order)])
            image = decoded_image(self.store, index, self.kept, self._decoded, corrupt)
            if image is not None:
                self.augment(image, self.spec, draws, out)
                return self.store.class_of(index)
        raise InputError(
            corrupt[-1][0],
            expected="an image that can be read",
            found=f"the last of {_TRIES} in a row that cannot",
            fix="run `bitfactor check-data` on it and repair or remove what it lists",
        )

    def _decoded(self, data: bytes, name: str) -> NDArray[np.uint8]:
        image = decode_about(data, max(self.spec.resize), name)
        return shrunk(image, self.area) if self.area else image


class ImageFolder(StoredImages):
    """Images in class directories: ImageNet's `train/` and `val/`, or any of the user's own.

    Its directory has `train/` and `val/` (or `valid`, `validation`, `test`), or the class directories
    themselves: then a fixed tenth of each class is for validation. A class's images may lie in directories
    below its own; links within it are followed, but not back up. Where the options hold "validation" out, a
    fixed tenth of the training images takes the place of the test images.

    Example
    -------
    >>> data = ImageFolder.load(Path("imagenet"), preset="paper")   # imagenet/train/n01440764/1.JPEG ...
    >>> data = ImageFolder.load(Path("flowers"), size=128)          # flowers/rose/1.jpg ...
    """

    def limited(self, limit: int) -> Self:
        """Return the same with at most so many test images, equally many of each class."""
        assert isinstance(self.test, FileStore)
        return replace(self, test=self.test.chosen(balanced(self.test.classes, limit)))

    @classmethod
    def _found(
        cls, directory: Path | None, holdout: Holdout, limit: int | None, cache: Path
    ) -> tuple[str, Store, Store, tuple[str, ...], str]:
        where = existing(
            directory, "a directory with train/ and val/, or with one directory of images for each class"
        )
        train, test, labels, name = _stores(where)
        if holdout == "validation":
            (train, test), name = train.split(), validation_name(train.directory)
        train, test = (store.chosen(balanced(store.classes, limit)) for store in (train, test))
        warn_of_empty(where, train.classes, labels)
        return str(directory), train, test, labels, name


def _stores(directory: Path) -> tuple[FileStore, FileStore, tuple[str, ...], str]:
    """Return training images, test images, the names of the classes and what the test images are called."""
    train_directory, test_directory = parts(directory)
    tree = Tree.scan(train_directory, directory).expect_inside()
    labels = tuple(tree.classes)
    if len(labels) < 2 or tree.empty:
        raise InputError(
            train_directory,
            expected="a directory of images for each of two or more classes",
            found=f"no images in {some(tree.empty)}" if len(labels) > 1 else some(labels) or "none",
            fix="add images or remove the directory; `bitfactor check-data` tells more",
        )
    store = file_store(tree, labels)
    if test_directory is None:
        return (*store.split(), labels, validation_name(train_directory))
    test = Tree.scan(test_directory, directory).expect_inside()
    unknown = sorted(set(test.classes) - set(labels))
    if unknown or len(test.empty) == len(test.classes):
        raise InputError(
            test_directory,
            expected=f"images of the classes in {train_directory}",
            found=f"the class {some(unknown)}" if unknown else "none",
            fix="let both have the same class directories",
        )
    return store, file_store(test, labels), labels, f"test images in {test_directory}"


class Shards(StoredImages):
    """Images in WebDataset shards, as a file `shards.json` describes them.

    ::

        {"train": "train-{000000..000146}.tar",
         "val": "https://example.org/val-{00..06}.tar",
         "labels": ["tench", "goldfish"],
         "samples": {"val-00.tar": 7143, "val-01.tar": 7143}}

    `train` and `val` are paths, relative to that file, or URLs that the library webdataset knows (https, s3),
    with braces for many. Without `val` the last tenth of the training shards is tested on. `labels` names the
    classes that the numbers in the shards stand for. `samples` tells how many samples a shard has, by file
    name. URLs need it, because an epoch's length must be known first. A shard that holds another number is an
    error. Local shards are counted when it is left out.

    Each process reads the samples that its part of a batch wants. So each comes once in an epoch, whatever
    the number of processes and workers. An epoch can be entered anywhere. What lies at a URL is copied whole
    into `cache` when its first sample is wanted, by one process for all of the machine. Where the options
    hold "validation" out, the last tenth of the training shards takes the place of those.
    """

    @classmethod
    def _found(
        cls, directory: Path | None, holdout: Holdout, limit: int | None, cache: Path
    ) -> tuple[str, Store, Store, tuple[str, ...], str]:
        description, where = read_description(directory)
        train, test, name = evaluation_shards(description, where, cache, holdout)
        if not train:
            raise bad_description(where, "two or more training shards, or val", "one shard")
        if limit is not None:
            expect_some("limit", limit)
        stores = ShardStore(train, limit), ShardStore(test, limit)
        labels = tuple(map(str, description["labels"]))
        for shard in test if "samples" in description else ():
            shard.expect_as_described()
        if "samples" not in description:  # else tables of contents are read later, and URLs fetched
            warn_of_empty(where, stores[0].classes, labels)
        return str(where), *stores, labels, name
