"""Data sets of images that are read, decoded and augmented while training goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.data.dataset import Batch
from bitfactor.data.decoding import decode_about
from bitfactor.data.evaluation_set import Drawn, PreparedBatch
from bitfactor.data.files import CorruptImages, Store
from bitfactor.data.presets import DRAWS, Preset, View, input_spec, view_of
from bitfactor.data.split import Indices, expect_some
from bitfactor.data.workers import in_order, usable_workers
from bitfactor.errors import InputError
from bitfactor.format import InputSpec

_TRIES = 20  # images in a row that may be corrupt


@dataclass(frozen=True)
class StoredImages:
    """Images of any size in a store, to train on and to test on.

    A training image that cannot be read is replaced by the next in the epoch's order, a test image is
    left out; `corrupt` warns about each, counts them and raises an error if they are too many.

    `workers` processes read and decode; batches are normalised on `device`. `crop` and `mirror` switch off
    what `preset` does to training images; `test_name` says which images the test images are.
    """

    train: Store
    test: Store
    labels: tuple[str, ...]
    preset: Preset
    input_spec: InputSpec
    corrupt: CorruptImages
    workers: int
    device: torch.device
    crop: bool = True
    mirror: bool = True
    test_name: str = "test images"

    @classmethod
    def of(
        cls,
        where: str,
        train: Store,
        test: Store,
        labels: tuple[str, ...],
        preset: Preset,
        size: int,
        workers: int | None,
        max_corrupt: float,
        crop: bool,
        mirror: bool,
        test_name: str,
    ) -> Self:
        """Return the data set of two stores; without `workers`, all cores of this process.

        Raises
        ------
        InputError
            If the size is below 1, `max_corrupt` is no fraction, `workers` is below 0, or a store is empty.
        """
        expect_some("size", size)
        for name, value, fits, expected in (
            ("workers", workers, workers is None or workers >= 0, "0 or more"),
            ("max_corrupt", max_corrupt, 0 <= max_corrupt <= 1, "a fraction from 0 to 1"),
            (where, len(train), len(train) > 0, "images to train on"),
            (where, len(test), len(test) > 0, "images to evaluate on"),
        ):
            if not fits:
                raise InputError(name, expected=expected, found=str(value), fix="change it")
        totals = {"train": len(train), "test": len(test)}
        return cls(
            train,
            test,
            labels,
            preset,
            input_spec(size, preset),
            CorruptImages(where, totals, max_corrupt),
            usable_workers() if workers is None else workers,
            torch.device("cpu"),
            crop,
            mirror,
            test_name,
        )

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
        view = view_of(self.preset, crop=self.crop, mirror=self.mirror)
        work = _TrainBatch(self.train, order, view, self.input_spec, (seed, epoch), batch_size, rank, world)
        shape = len(range(rank, batch_size, world)), *self.input_spec.size, 3
        numbers = range(start, self.steps(batch_size))
        for images, drawn in in_order(work, numbers, shape, np.uint8, self.workers):
            labels = self._labels("train", drawn)
            yield self._normalised(torch.from_numpy(images).permute(0, 3, 1, 2)), labels

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the test images in order."""
        mine = range(rank, len(self.test), world)
        work = PreparedBatch(self.test, self.input_spec, expect_some("batch_size", batch_size), mine)
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
    view: View
    spec: InputSpec
    key: tuple[int, int]
    batch_size: int
    rank: int
    world: int

    def __call__(self, number: int, out: NDArray[np.uint8]) -> Drawn:
        first = number * self.batch_size
        labels, corrupt = list[int](), list[tuple[str, str]]()
        draws = np.random.default_rng((*self.key, number + 1)).random((self.batch_size, DRAWS))
        for slot, i in enumerate(range(self.rank, self.batch_size, self.world)):
            labels.append(self._write(first + i, draws[i], out[slot], corrupt))
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
            try:
                data, label = self.store.read(index)
                image = decode_about(data, max(self.spec.resize), self.store.name(index))
            except (OSError, InputError) as error:
                corrupt.append((self.store.name(index), str(error)))
                continue
            self.view(image, self.spec, draws, out)
            return label
        raise InputError(
            corrupt[-1][0],
            expected="an image that can be read",
            found=f"the last of {_TRIES} in a row that cannot",
            fix="run `bitfactor check-data` on it and repair or remove what it lists",
        )
