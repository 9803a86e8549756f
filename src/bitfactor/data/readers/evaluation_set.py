"""Which images of a directory a network is evaluated on, prepared as its file says; needs no torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.data.readers.cifar import (
    SIDE,
    TEST_NAME,
    CifarFiles,
    CifarLayout,
    expect_no_directory,
    read_scans,
    without_last_tenth,
)
from bitfactor.data.readers.files import (
    CorruptImages,
    FileStore,
    Holdout,
    Indices,
    Store,
    Tree,
    balanced,
    composed,
    expect_some,
    file_store,
    has_directories,
    parts,
    parts_in,
    some,
    validation_name,
)
from bitfactor.data.readers.identity import Identity, array_of, digest_of
from bitfactor.data.readers.kept import KeptImages, decoded_image
from bitfactor.data.readers.shard import ShardStore, evaluation_shards, is_url, read_description, user_cache
from bitfactor.data.readers.workers import in_threads
from bitfactor.pose.images import decode_image, normalise, prepare, resized

if TYPE_CHECKING:
    from bitfactor.data.in_memory import DataSet


Drawn = tuple[list[int], list[tuple[str, str]]]
"""The classes of a batch's images, and name and message of each image that could not be read."""


@dataclass(frozen=True)
class PreparedBatch:
    """Fills batches (N, C, H, W) of the images with these `indices`; what cannot be read is left out."""

    store: Store
    spec: InputSpec
    batch_size: int
    indices: Sequence[int] | Indices
    kept: KeptImages | None = None

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
            image = decoded_image(self.store, int(index), self.kept, self._resized, corrupt)
            if image is not None:
                out[len(labels)] = normalise(image, self.spec)
                labels.append(self.store.class_of(int(index)))
        return labels, corrupt

    def _resized(self, data: bytes, name: str) -> NDArray[np.uint8]:
        return resized(decode_image(data, len(self.spec.mean), name), self.spec)


Batch = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Inputs (N, C, H, W) and the place of each one's class in the network's labels, (N,)."""

_BATCH = 256
_READ_AT_ONCE = 32  # what each thread decodes before it takes the next
_CORRUPT = 0.01  # of the images may be


@dataclass(frozen=True)
class EvaluationSet:
    """Images of known classes: `batches()` yields them, prepared.

    `name` says which images they are, for use after their number, and `notes` what else is to be known.
    `total` is how many there are before a `limit`. `digest` tells them from others ("" where it is not
    known).
    """

    batches: Callable[[], Iterator[Batch]]
    labels: tuple[str, ...]
    name: str
    total: int | None = None
    limit: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()

    def described(self, number: int) -> str:
        """Return which images `number` of them are."""
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


@dataclass(frozen=True)
class Wanted:
    """What images are to be: for a network with these `labels`, prepared by `spec`.

    `network` names it in messages. `trained_with` is the identity of the data that it was trained with, if
    that is known. `holdout` says whether to evaluate on test or validation images.
    """

    network: str
    labels: tuple[str, ...]
    spec: InputSpec
    holdout: Holdout = "test"
    trained_with: Identity | None = None
    limit: int | None = None

    def places(self, classes: Sequence[str], where: object) -> Indices:
        """Return the place in `labels` of each of the classes of a directory, which are matched by name."""
        labels = [composed(label) for label in self.labels]
        unknown = [name for name in classes if composed(name) not in labels]
        if unknown:
            close = get_close_matches(unknown[0], self.labels)
            raise InputError(
                where,
                expected=f"classes of {self.network} ({some(self.labels)})",
                found=f"the class {some(unknown)}",
                fix=f"did you mean {' or '.join(close)}?" if close else "rename or remove what is no class",
            )
        return np.array([labels.index(composed(name)) for name in classes], np.int64)


def of_digits(directory: Path | None, wanted: Wanted) -> EvaluationSet:
    """Return the test part of scikit-learn's digits, which need no directory."""
    expect_no_directory(directory)
    scans = read_scans()
    mean, std = (np.float32(values[0]) for values in (wanted.spec.mean, wanted.spec.std))

    def prepared(images: NDArray[np.float32]) -> NDArray[np.float32]:
        return (images[:, None] - mean) / std

    images, classes = scans.images[scans.test], scans.classes[scans.test]
    return of_arrays(images, classes, prepared, wanted.labels, TEST_NAME, wanted.limit)


def of_cifar(directory: Path, wanted: Wanted, layout: CifarLayout) -> EvaluationSet:
    """Return the test part of CIFAR's files."""
    files = CifarFiles.at(directory, layout)
    labels = files.labels()
    places = wanted.places(labels, files.where)
    (pixels, classes), name = files.test(len(labels)), f"test images in {files.where}"
    if wanted.holdout == "validation":
        _, (pixels, classes) = without_last_tenth(files.train(len(labels)))
        name = validation_name(files.where)

    def prepared(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        images = np.ascontiguousarray(pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
        return np.stack([prepare(image, wanted.spec) for image in images])

    found = of_arrays(pixels, places[classes], prepared, wanted.labels, name, wanted.limit)
    return _known(found.with_notes(*_missing(labels, wanted)), wanted, whole=True)


def of_shards(directory: Path, wanted: Wanted) -> EvaluationSet:
    """Return the test part of shards."""
    description, where = read_description(directory)
    labels = tuple(map(str, description["labels"]))
    _, test, name = evaluation_shards(description, where, user_cache(), wanted.holdout)
    places = wanted.places(labels, where)
    if wanted.limit is not None and any(is_url(shard.place) for shard in test):
        raise InputError(
            "--limit", expected="shards on this machine", found="shards at URLs", fix="leave it out"
        )
    found = of_store(ShardStore(test), places, wanted.spec, wanted.labels, name, wanted.limit)
    return _known(found.with_notes(*_missing(labels, wanted)), wanted, whole=True)


def of_folders(directory: Path, wanted: Wanted) -> EvaluationSet:
    """Return the images of `val/` or the like, or of class directories alone those not trained with."""
    train, test = parts(directory)
    apart = test if test is not None and wanted.holdout == "test" else None
    if train == directory and test is None:
        apart = _test_directory(directory, wanted.labels)
    if apart is not None:
        found = _of_tree(_scanned(apart, directory, wanted), wanted, f"test images in {apart}")
        return _known(found, wanted, whole=train != directory)
    tree = _scanned(train, directory, wanted)
    store = file_store(tree, tree.classes)
    split = store.split()
    if test is None and wanted.holdout == "validation":
        split = split[0].split()
    if train != directory or _is_its_own(directory, split, wanted):
        found = _of_tree(tree, wanted, validation_name(train), split[1])
        return _known(found, wanted, whole=True)
    found = _of_tree(tree, wanted, f"test images in {directory}", store)
    if wanted.trained_with is None:
        return found.with_notes("which images it was trained with is not known: it may have seen these")
    return _known(found, wanted, whole=False)


def _scanned(directory: Path, data: Path, wanted: Wanted) -> Tree:
    tree = Tree.scan(directory, data).expect_inside()
    if not any(tree.classes.values()):
        raise InputError(
            directory,
            expected="class directories with images",
            found=f"no images in {some(tree.empty)}" if tree.empty else f"none, but {len(tree.others)} files",
            fix=f"name directories after the classes of {wanted.network}: {some(wanted.labels)}",
        )
    return tree


def _of_tree(tree: Tree, wanted: Wanted, name: str, store: FileStore | None = None) -> EvaluationSet:
    places = wanted.places(list(tree.classes), tree.directory)
    if store is None:
        store = file_store(tree, tree.classes)
    found = of_store(store, places, wanted.spec, wanted.labels, name, wanted.limit)
    return found.with_notes(*_missing([name for name, images in tree.classes.items() if images], wanted))


def _test_directory(directory: Path, labels: Sequence[str]) -> Path | None:
    """Return val/ or the like where it stands alone, with class directories in it."""
    if {composed(child.name) for child in directory.iterdir()} & set(map(composed, labels)):
        return None
    found = parts_in(directory)
    apart = (found[part] for part in ("validation", "test") if part in found)
    return next((place for place in apart if has_directories(place)), None)


def _is_its_own(directory: Path, split: tuple[FileStore, FileStore], wanted: Wanted) -> bool:
    """Return whether class directories are those that the network was trained with."""
    known: Mapping[str, object] = wanted.trained_with or {}
    fingerprint = "".join(store.digest() for store in split)
    return known.get("fingerprint") == fingerprint or known.get("path") == str(directory.resolve())


def _missing(classes: Sequence[str], wanted: Wanted) -> tuple[str, ...]:
    there = set(map(composed, classes))
    missing = [label for label in wanted.labels if composed(label) not in there]
    if not missing:
        return ()
    return (f"no images of {len(missing)} of its {len(wanted.labels)} classes: {some(missing)}",)


def _known(found: EvaluationSet, wanted: Wanted, *, whole: bool) -> EvaluationSet:
    """Note where images are others than those of the training; `whole` where training images lie beside."""
    fingerprint = str((wanted.trained_with or {}).get("fingerprint", ""))
    if len(fingerprint) != 2 * len(found.digest) or found.digest == fingerprint[len(found.digest) :]:
        return found
    if found.digest == fingerprint[: len(found.digest)]:
        return found.with_notes("these are the images that it was trained with")
    return found.with_notes(
        "other images than it was trained with" if whole else "not the test images of its training"
    )
