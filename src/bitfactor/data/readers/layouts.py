"""Which images of a directory a network is evaluated on; needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import InputSpec
from bitfactor.data.readers.cifar import (
    CIFAR10,
    CIFAR100,
    SIDE,
    TEST_NAME,
    CifarFiles,
    Layout,
    expect_no_directory,
    read_scans,
    without_last_tenth,
)
from bitfactor.data.readers.evaluation_set import EvaluationSet, of_arrays, of_store
from bitfactor.data.readers.files import (
    FileStore,
    Holdout,
    Indices,
    Tree,
    composed,
    existing,
    file_store,
    has_directories,
    parts,
    parts_in,
    some,
    validation_name,
)
from bitfactor.data.readers.identity import Identity
from bitfactor.data.readers.shard import (
    DESCRIPTION,
    ShardStore,
    evaluation_shards,
    is_url,
    read_description,
    user_cache,
)
from bitfactor.pose.images import prepare


@dataclass(frozen=True)
class Wanted:
    """What images are to be: for a network with these `labels`, prepared by `spec`.

    `network` names it in messages, `trained_with` is the identity of the data that it was trained with, if
    that is known, and `holdout` says whether it was to be evaluated on test or validation images.
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


def digits(wanted: Wanted, directory: Path | None) -> EvaluationSet:
    """Return the test part of scikit-learn's digits, which need no directory."""
    expect_no_directory(directory)
    scans = read_scans()
    mean, std = (np.float32(values[0]) for values in (wanted.spec.mean, wanted.spec.std))

    def prepared(images: NDArray[np.float32]) -> NDArray[np.float32]:
        return (images[:, None] - mean) / std

    images, classes = scans.images[scans.test], scans.classes[scans.test]
    return of_arrays(images, classes, prepared, wanted.labels, TEST_NAME, wanted.limit)


def images_in(directory: Path | None, wanted: Wanted) -> EvaluationSet:
    """Return the images of a directory that are for evaluation.

    Of CIFAR's files and of shards the test part; of a directory with `val/` or `test/`, in any usual
    spelling, the images there; of class directories alone all images, unless they are those that the network
    was trained with: then the tenth that was not. With `holdout="validation"` a tenth of the training images.
    """
    if directory is not None and directory.name in (CIFAR10.archive, CIFAR100.archive):
        directory = directory.parent
    expected = "a directory with images: val/ with class directories, these alone, CIFAR's files or shards"
    place = existing(directory, expected)
    for layout in (CIFAR10, CIFAR100):
        if layout.is_in(place):
            return _known(_cifar(place, layout, wanted), wanted, whole=True)
    if (place / DESCRIPTION).is_file():
        return _known(_shards(place, wanted), wanted, whole=True)
    return _folders(place, wanted)


def _cifar(directory: Path, layout: Layout, wanted: Wanted) -> EvaluationSet:
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
    return found.with_notes(*_missing(labels, wanted))


def _shards(directory: Path, wanted: Wanted) -> EvaluationSet:
    description, where = read_description(directory)
    labels = tuple(map(str, description["labels"]))
    _, test, name = evaluation_shards(description, where, user_cache(), wanted.holdout)
    places = wanted.places(labels, where)
    if wanted.limit is not None and any(is_url(shard.place) for shard in test):
        raise InputError(
            "--limit", expected="shards on this machine", found="shards at URLs", fix="leave it out"
        )
    found = of_store(ShardStore(test), places, wanted.spec, wanted.labels, name, wanted.limit)
    return found.with_notes(*_missing(labels, wanted))


def _folders(directory: Path, wanted: Wanted) -> EvaluationSet:
    train, test = parts(directory)
    apart = test if test is not None and wanted.holdout == "test" else None
    if train == directory and test is None:
        apart = _test_directory(directory, wanted.labels)
    if apart is not None:
        found = _of_tree(_scanned(apart, wanted), wanted, f"test images in {apart}")
        return _known(found, wanted, whole=train != directory)
    tree = _scanned(train, wanted)
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


def _scanned(directory: Path, wanted: Wanted) -> Tree:
    tree = Tree.scan(directory)
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
    if any((directory / label).is_dir() for label in labels):
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
