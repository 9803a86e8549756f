"""Images to evaluate a network on, prepared as its file says; needs no torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.data.readers.files import CorruptImages, FileStore, Indices, Store, balanced, expect_some
from bitfactor.data.readers.identity import array_of, digest_of
from bitfactor.data.readers.shard import ShardStore
from bitfactor.data.readers.workers import in_threads
from bitfactor.pose.images import decode_image, prepare

if TYPE_CHECKING:
    from bitfactor.data.dataset import DataSet


Drawn = tuple[list[int], list[tuple[str, str]]]
"""The classes of a batch's images, and name and message of each image that could not be read."""


@dataclass(frozen=True)
class PreparedBatch:
    """Fills batches (N, C, H, W) of the images with these `indices`; what cannot be read is left out."""

    store: Store
    spec: InputSpec
    batch_size: int
    indices: Sequence[int] | Indices

    def __len__(self) -> int:
        """Return the number of batches."""
        return -(-len(self.indices) // self.batch_size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a batch."""
        return self.batch_size, len(self.spec.mean), *self.spec.size

    def __call__(self, number: int, out: NDArray[np.float32]) -> Drawn:
        labels, corrupt = list[int](), list[tuple[str, str]]()
        for index in self.indices[number * self.batch_size : (number + 1) * self.batch_size]:
            try:
                data, label = self.store.read(index)
                image = decode_image(data, len(self.spec.mean), self.store.name(index))
            except (OSError, InputError) as error:
                corrupt.append((self.store.name(index), str(error)))
                continue
            out[len(labels)] = prepare(image, self.spec)
            labels.append(label)
        return labels, corrupt


Batch = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Inputs (N, C, H, W) and the place of each one's class in the network's labels, (N,)."""

_BATCH = 256
_READ_AT_ONCE = 32  # what each thread decodes before it takes the next
_CORRUPT = 0.01  # of the images may be


@dataclass(frozen=True)
class EvaluationSet:
    """Images of known classes: `batches()` yields them, prepared.

    `name` says which images they are, for use after their number; `notes` what else is to be known of them;
    `total`, how many there are, of which a `limit` may leave some; `digest` tells them from others ("" where
    it is not known).
    """

    batches: Callable[[], Iterator[Batch]]
    labels: tuple[str, ...]
    name: str
    total: int | None = None
    limit: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()

    def described(self, number: int) -> str:
        """Return which images `number` of them are.

        >>> images.described(360)
        '360 test images in flowers/val'
        """
        if not self.limit:
            return f"{number:,} {self.name}"
        return f"{number:,} of the {f'{self.total:,} ' if self.total else ''}{self.name}, {self.limit}"

    def with_notes(self, *notes: str) -> "EvaluationSet":
        """Return the same images with more to say of them."""
        return replace(self, notes=(*self.notes, *notes))


def of_store(
    store: FileStore | ShardStore,
    places: NDArray[np.int64],
    spec: InputSpec,
    labels: tuple[str, ...],
    name: str,
    limit: int | None = None,
) -> EvaluationSet:
    """Return the images of a store, which are read and decoded when they are wanted.

    At most 1 % may be corrupt: each is warned of and left out.

    Parameters
    ----------
    places
        For each class of the store, its place in `labels`.
    limit
        At most so many images, classes equally often.
    """
    cut = _cut(limit, len(store), name)
    chosen = np.arange(len(store)) if limit is None else balanced(store.classes, limit)

    def batches() -> Iterator[Batch]:
        work = PreparedBatch(store, spec, _READ_AT_ONCE, chosen)
        corrupt = CorruptImages(name, {"test": len(chosen)}, _CORRUPT)
        for inputs, (found, unreadable) in in_threads(work, range(len(work)), work.shape, np.float32):
            for image, message in unreadable:
                corrupt.add("test", image, message)
            if found:
                yield inputs[: len(found)], places[found]

    return EvaluationSet(batches, labels, name, len(store), cut, store.digest())


def of_arrays(
    images: NDArray[Any],
    classes: NDArray[np.int64],
    prepare: Callable[[NDArray[Any]], NDArray[np.float32]],
    labels: tuple[str, ...],
    name: str,
    limit: int | None = None,
) -> EvaluationSet:
    """Return images in memory, (N, ...); `prepare` makes inputs (n, C, H, W) of some of them.

    `classes` (N,) are places in `labels`.
    """
    cut = _cut(limit, len(classes), name)
    chosen = balanced(classes, limit)

    def batches() -> Iterator[Batch]:
        for start in range(0, len(chosen), _BATCH):
            some = chosen[start : start + _BATCH]
            yield prepare(images[some]), classes[some]

    return EvaluationSet(batches, labels, name, len(classes), cut, digest_of((images, classes)))


def of_data_set(data: "DataSet", labels: tuple[str, ...], limit: int | None = None) -> EvaluationSet:
    """Return the test images of a data set of anyone's own, as it prepares them; a limit takes the first."""
    if labels and data.labels != labels:
        raise InputError(
            type(data).__name__,
            expected=f"the {len(labels)} classes of the network",
            found=f"{len(data.labels)} classes" if len(data.labels) != len(labels) else "others",
            fix="name the data that it was trained on",
        )
    size = _BATCH if limit is None else min(_BATCH, expect_some("limit", limit))

    def batches() -> Iterator[Batch]:
        left = limit
        for inputs, target in data.test_batches(size):
            taken = len(inputs) if left is None else min(left, len(inputs))
            yield array_of(inputs[:taken]), array_of(target)[:taken]
            left = None if left is None else left - taken
            if left == 0:
                return

    name = getattr(data, "test_name", f"test images of {type(data).__name__}")
    return EvaluationSet(batches, data.labels, name, limit="" if limit is None else "the first")


def _cut(limit: int | None, total: int, name: str) -> str:
    if total == 0:
        raise InputError(name, expected="images", found="none", fix="name a directory that has some")
    if limit is None or expect_some("limit", limit) >= total:
        return ""
    return "equally many of each class"
