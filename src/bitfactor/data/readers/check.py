"""What is wrong with a directory of data, before a run finds out: its layout, and all of its files.

What there is in a directory of images and what is wrong with it; every image is decoded once. `LAYOUTS` says
what is recognised, checked and evaluated, an entry for each layout.
"""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.result import Result, text_table
from bitfactor.data.readers.annotations import (
    coco_files,
    lsp_parts,
    mpii_files,
    read_coco_parts,
    read_lsp,
    read_mpii,
)
from bitfactor.data.readers.cifar import CIFAR10, CIFAR100, CifarFiles, CifarLayout
from bitfactor.data.readers.evaluation_set import (
    EvaluationSet,
    Wanted,
    of_cifar,
    of_digits,
    of_folders,
    of_shards,
)
from bitfactor.data.readers.files import SUFFIXES, FileStore, Store, Tree, existing, file_store, parts
from bitfactor.data.readers.instances import Instances
from bitfactor.data.readers.shard import DESCRIPTION, ShardStore, read_description, shards_of, user_cache
from bitfactor.data.readers.workers import in_threads
from bitfactor.pose.images import decode_image, decoded, jpeg_frame

_SHOWN = 10
_CLASSES_SHOWN = 50
_BALANCED = 20


@dataclass
class Findings(Result):
    """What there is and what is wrong with it.

    `problems` and `notes` map a kind to what is concerned: problems want repair before a run, notes are
    good to know. `by_class` maps a class to its sound images in each part. `sizes` are least, median and
    greatest height and width in pixels. `classes` is 0 where there are `instances` with keypoints instead.
    """

    layout: str
    classes: int = 0
    images: dict[str, int] = field(default_factory=dict)
    by_class: dict[str, dict[str, int]] = field(default_factory=dict)
    instances: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    directory: str = ""

    def problem(self, kind: str, what: str) -> None:
        """Add a problem."""
        self.problems.setdefault(kind, []).append(what)

    def note(self, kind: str, what: str) -> None:
        """Add a note."""
        self.notes.setdefault(kind, []).append(what)

    def count(self, part: str, labels: Sequence[str], numbers: NDArray[np.integer]) -> None:
        """Add how many images of each class a part has; note where one has far more than another."""
        for label, images in zip(labels, np.bincount(numbers, minlength=len(labels)).tolist(), strict=True):
            self.by_class.setdefault(label, {})[part] = images
        held = {label: counts[part] for label, counts in self.by_class.items() if counts[part]}
        few, many = (min(held, key=held.__getitem__), max(held, key=held.__getitem__)) if held else ("", "")
        if held and held[many] > _BALANCED * held[few]:
            told = f"{part}: {held[many]:,} images of {many}, {held[few]:,} of {few}"
            self.note(f"classes that differ beyond {_BALANCED} to 1", told)

    def _classes(self) -> list[str]:
        """Return a table of the images of each class in each part: of the rarest where there are many."""
        if not self.by_class:
            return []
        rarest = sorted(self.by_class, key=lambda label: sum(self.by_class[label].values()))[:_CLASSES_SHOWN]
        parts = list(self.by_class[rarest[0]])
        rows = [
            [label, *(f"{self.by_class[label][part]:,}" for part in parts)]
            for label in self.by_class
            if label in rarest
        ]
        more = len(self.by_class) - len(rarest)
        table = text_table(("images of", *parts), rows, right=frozenset(range(1, len(parts) + 1)))
        return ["", table] + [f"... and {more} classes with more; --json lists all"] * bool(more)

    def __str__(self) -> str:
        rows = [("layout", self.layout)] + [("classes", str(self.classes))] * bool(self.classes)
        for kind, counts in (("images", self.images), ("instances", self.instances)):
            rows += [(f"{kind}, {part}", f"{count:,}") for part, count in counts.items()]
        rows += [
            (side, f"{low} to {high}, median {middle}") for side, (low, middle, high) in self.sizes.items()
        ]
        rows += [(mode, f"{count:,}") for mode, count in self.modes.items()]
        lines = [text_table((self.directory, ""), rows), *self._classes()]
        for title, kinds in (("problem", self.problems), ("note", self.notes)):
            for kind, concerned in kinds.items():
                lines += ["", f"{title}: {kind} ({len(concerned)})"]
                lines += [f"  {what}" for what in concerned[:_SHOWN]]
                if len(concerned) > _SHOWN:
                    lines.append(f"  ... and {len(concerned) - _SHOWN} more; --json lists all")
        return "\n".join(lines if self.problems else [*lines, "", "no problems"])


Advance = Callable[[int, int], None]
"""Told how many images were looked at, and of how many."""

_CHUNK = 32


@dataclass(frozen=True)
class Seen:
    """An image, or why it is none."""

    name: str
    label: int = 0
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    digest: int = 0
    error: str = ""


@dataclass(frozen=True)
class _Look:
    """Decodes the images of a chunk."""

    store: Store

    def __call__(self, number: int, out: NDArray[Any]) -> list[Seen]:
        chunk = range(number * _CHUNK, min((number + 1) * _CHUNK, len(self.store)))
        return [self._seen(index) for index in chunk]

    def _seen(self, index: int) -> Seen:
        name = self.store.name(index)
        try:
            data, label = self.store.read(index)
            image = decode_image(data, 3, name)
        except (OSError, InputError) as error:
            return Seen(name, error=str(error))
        digest = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
        return Seen(name, label, image.shape[:2], _mode(data), digest)


def _mode(data: bytes) -> str:
    if (frame := jpeg_frame(data)) is not None:
        return {1: "grey", 3: "RGB", 4: "CMYK"}.get(frame[2], f"{frame[2]} channels")
    stored = decoded(data, cv2.IMREAD_UNCHANGED)
    if stored is None:
        return "RGB"
    channels = stored.shape[2] if stored.ndim == 3 else 1
    mode = {1: "grey", 3: "RGB", 4: "RGB with transparency"}.get(channels, f"{channels} channels")
    return mode if stored.dtype == np.uint8 else f"{mode}, {8 * stored.dtype.itemsize} bit"


def inspect(
    parts: Mapping[str, Store],
    labels: tuple[str, ...],
    findings: Findings,
    advance: Advance,
    looked: Callable[[Seen], None] = lambda seen: None,
) -> None:
    """Decode every image of every part and add what was found; `looked` is called with each that is sound."""
    total, sizes, modes = sum(map(len, parts.values())), list[tuple[int, int]](), Counter[str]()
    first: dict[int, tuple[str, Seen]] = {}  # by digest
    done = 0
    for part, store in parts.items():
        findings.images[part] = len(store)
        classes = list[int]()
        chunks = range(-(-len(store) // _CHUNK))
        for _, chunk in in_threads(_Look(store), chunks, (0,), np.uint8):
            for seen in chunk:
                if seen.error:
                    findings.problem("corrupt images", seen.error)
                    continue
                looked(seen)
                classes.append(seen.label)
                sizes.append(seen.size)
                modes[seen.mode] += 1
                _compare(first.setdefault(seen.digest, (part, seen)), (part, seen), labels, findings)
            done += len(chunk)
            advance(done, total)
        if findings.classes:
            findings.count(part, labels, np.array(classes, np.int64))
    findings.modes = dict(modes.most_common())
    if sizes:
        lows, middles, highs = (f(sizes, axis=0).astype(int).tolist() for f in (np.min, np.median, np.max))
        findings.sizes = dict(zip(("height", "width"), zip(lows, middles, highs, strict=True), strict=True))


def _compare(
    one: tuple[str, Seen], other: tuple[str, Seen], labels: tuple[str, ...], findings: Findings
) -> None:
    (part, a), (other_part, b) = one, other
    if a is b:
        return
    if a.label != b.label:
        where = f"{a.name} ({labels[a.label]}), {b.name} ({labels[b.label]})"
        findings.problem("one image in two classes", where)
    elif part != other_part:
        findings.problem("training images in the test set", f"{a.name}, {b.name}")
    else:
        findings.note("images that are there twice", f"{a.name}, {b.name}")


def check_cifar(directory: Path, advance: Advance, layout: CifarLayout, name: str) -> Findings:
    """Read all files of CIFAR."""
    findings, files = Findings(name), CifarFiles.at(directory, layout)
    batches = [("train", file) for file in layout.train] + [("test", layout.test)]
    found: dict[str, list[NDArray[np.integer]]] = {}
    try:
        findings.classes = len(files.labels())
    except InputError as error:
        findings.problem("unusable files", str(error))
        return findings
    for done, (part, file) in enumerate(batches, start=1):
        try:
            _, labels = files.batch(file, findings.classes)
        except InputError as error:
            findings.problem("unusable files", str(error))
            continue
        findings.images[part] = findings.images.get(part, 0) + len(labels)
        found.setdefault(part, []).append(labels)
        advance(done, len(batches))
    for part, numbers in found.items():
        findings.count(part, files.labels(), np.concatenate(numbers))
    return findings


def check_shards(directory: Path, advance: Advance) -> Findings:
    """Read all shards."""
    findings = Findings("WebDataset shards")
    description, where = read_description(directory)
    stores = {}
    for part in ("train", "val"):
        usable = []
        for shard in shards_of(description, part, where, user_cache()):
            try:
                shard.table  # noqa: B018 - reads it
            except InputError as error:
                findings.problem("unusable shards", str(error))
            else:
                usable.append(shard)
        stores[part] = ShardStore(tuple(usable))
        keys = Counter(f"{key.decode(errors='replace')}" for shard in usable for key in shard.table.keys)
        for key, count in keys.items():
            if count > 1:
                findings.note(f"names that stand in {part} more than once", key)
    labels = tuple(map(str, description["labels"]))
    findings.classes = len(labels)
    inspect({part: store for part, store in stores.items() if len(store)}, labels, findings, advance)
    for label, counts in findings.by_class.items():
        for part in (part for part, images in counts.items() if not images):
            findings.problem(f"classes that are missing in {part}", label)
    return findings


def check_folder(directory: Path, advance: Advance) -> Findings:
    """Decode all images and compare the classes of both parts."""
    findings = Findings("image folder")
    train, test = parts(directory)
    trees = {"train": Tree.scan(train, directory)} | ({test.name: Tree.scan(test, directory)} if test else {})
    known = set(trees["train"].classes)
    findings.classes = len(known)
    for part, tree in trees.items():
        for name in tree.empty:
            findings.problem("classes without images", f"{tree.directory}/{name}")
        for name in sorted(known - tree.classes.keys()):
            findings.problem(f"classes that are missing in {part}", name)
        for name in sorted(tree.classes.keys() - known):
            findings.problem(f"classes that are in {part} alone", name)
        for name in tree.loops:
            findings.problem("links that lead back up", f"{tree.directory}/{name}")
        for name in tree.outside:
            findings.problem("links that lead out of the data, or nowhere", f"{tree.directory}/{name}")
        for name in tree.others:
            is_image = Path(name).suffix.lower() in SUFFIXES
            found = "images that lie in no class" if is_image else "files that are no images by their names"
            findings.note(found, f"{tree.directory}/{name}")
    labels = tuple(sorted(known | {name for tree in trees.values() for name in tree.classes}))
    stores = {part: file_store(tree, labels) for part, tree in trees.items()}
    _same_names(trees, findings)
    inspect(stores, labels, findings, advance)
    return findings


def _same_names(trees: dict[str, Tree], findings: Findings) -> None:
    names = [{n for images in tree.classes.values() for n in images} for tree in trees.values()]
    for name in sorted(set.intersection(*names)) if len(names) > 1 else ():
        findings.note("names that stand in both parts", name)


Parts = tuple[Instances, Instances]


def check_pose(directory: Path, advance: Advance, name: str, read: Callable[[Path], Parts]) -> Findings:
    """Compare annotations with their images."""
    findings = Findings(name)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            parts = dict(zip(("train", "test"), read(directory), strict=True))
    except InputError as error:
        findings.problem("unusable annotations", str(error))
        return findings
    for warning in said:
        findings.note("what reading the annotations says", str(warning.message))
    stores, known = {}, set[Path]()
    for part, instances in parts.items():
        findings.instances[part] = len(instances)
        images = sorted(set(instances.images))
        for image in images:
            if image in known:
                findings.note("images that show instances of both parts", str(image))
            elif not image.is_file():
                findings.problem("images that are missing", str(image))
        present = [os.path.relpath(image, directory) for image in images if image.is_file()]
        names = [os.fsencode(name) for name in present if directory / name not in known]
        stores[part] = FileStore(directory, np.array(names, np.bytes_), np.zeros(len(names), np.int64))
        known |= set(images)
    sizes = dict[str, tuple[int, int]]()
    inspect(stores, ("",), findings, advance, lambda seen: sizes.update({seen.name: seen.size}))
    for part, instances in parts.items():
        _check_annotated(instances, sizes, findings)
        _check_instances(part, instances, sizes, findings)
    return findings


def _check_annotated(instances: Instances, sizes: dict[str, tuple[int, int]], findings: Findings) -> None:
    for image in dict.fromkeys(instances.images):
        if str(image) in sizes:
            try:
                instances.expect_as_annotated(image, sizes[str(image)])
            except InputError as error:
                findings.problem("images that are not as annotated", str(error))


def _check_instances(
    part: str, instances: Instances, sizes: dict[str, tuple[int, int]], findings: Findings
) -> None:
    for i, image in enumerate(instances.images):
        who = f"{part} {i}, in {image}"
        if not instances.side[i] > 0:
            findings.note("instances that are left out: fewer than two labelled keypoints", who)
        elif part == "test" and np.isnan(instances.norm[i]):
            findings.note("instances that are not evaluated: what errors are measured by is unknown", who)
        height, width = sizes.get(str(image), (np.inf, np.inf))
        places = instances.keypoints[i, instances.labelled[i]]
        outside = (places < -0.5) | (places > np.array([width, height]) - 0.5)
        if outside.any():
            findings.note("labelled keypoints outside of their image", f"{who}: {outside.any(1).sum()}")


@dataclass(frozen=True)
class Layout:
    """A way in which data lie in a directory.

    `evaluation_set` gives the images that a network which classifies is evaluated on; annotated instances
    have none.
    """

    name: str
    recognises: Callable[[Path], bool]
    check: Callable[[Path, Advance], Findings]
    evaluation_set: Callable[[Path, Wanted], EvaluationSet] | None = None


def _cifar(name: str, layout: CifarLayout, kind: str) -> Layout:
    check = partial(check_cifar, layout=layout, name=kind)
    return Layout(name, layout.is_in, check, partial(of_cifar, layout=layout))


LAYOUTS = (
    _cifar("CIFAR-10 as cifar-10-batches-py", CIFAR10, "Cifar10"),
    _cifar("CIFAR-100 as cifar-100-python", CIFAR100, "Cifar100"),
    Layout(
        f"WebDataset shards with {DESCRIPTION}",
        lambda place: (place / DESCRIPTION).is_file(),
        check_shards,
        of_shards,
    ),
    Layout(
        "Leeds Sports Pose: joints.mat and images/",
        lambda place: (place / "joints.mat").is_file(),
        partial(check_pose, name="Leeds Sports Pose", read=lambda place: lsp_parts(read_lsp(place))),
    ),
    Layout(
        "COCO's keypoints: their annotations, train.json and val.json",
        lambda place: coco_files(place) is not None,
        partial(check_pose, name="COCO keypoints", read=lambda place: read_coco_parts(place)[:2]),
    ),
    Layout(
        "MPII: images/ and its annotations",
        lambda place: bool(mpii_files(place)),
        partial(check_pose, name="MPII", read=read_mpii),
    ),
    Layout(
        "one directory of images for each class, in train/ and val/ or at once",
        lambda place: sum(map(bool, Tree.scan(parts(place)[0]).classes.values())) > 1,
        check_folder,
        of_folders,
    ),
)


@checked
def check_data(directory: str | os.PathLike[str], advance: Advance | None = None) -> Findings:
    """Find out what `directory` is, read all of it and return what was found.

    Parameters
    ----------
    directory
        Of CIFAR's files, of WebDataset shards, of class directories, or of Leeds Sports Pose, MPII or COCO's
        keypoints.
    advance
        Told how many images were looked at, and of how many.

    Raises
    ------
    InputError
        If it is none of the known layouts.

    Example
    -------
    >>> print(check_data("flowers"))
    >>> check_data("flowers").problems
    {'corrupt images': ['flowers/rose/7.jpg: ...']}
    """
    place = existing(Path(directory), "a directory")
    for layout in LAYOUTS:
        if layout.recognises(place):
            findings = layout.check(place, advance or (lambda done, total: None))
            findings.directory = str(directory)
            return findings
    raise InputError(
        directory,
        expected=f"one of the known layouts ({'; '.join(layout.name for layout in LAYOUTS)})",
        found="an unknown one",
        fix="name the directory that holds the files, or arrange them as one of these",
    )


def images_in(directory: Path | None, wanted: Wanted) -> EvaluationSet:
    """Return the images of a directory that are for evaluation.

    Of CIFAR's files and of shards that is the test part. Of a directory with `val/` or `test/`, in any usual
    spelling, it is the images there. Of class directories alone it is all images. Where the network was
    trained with them, it is the tenth that was not trained on. With `holdout="validation"` a tenth of the
    training images.
    """
    if directory is not None and directory.name in (CIFAR10.archive, CIFAR100.archive):
        directory = directory.parent
    expected = "a directory with images: val/ with class directories, these alone, CIFAR's files or shards"
    place = existing(directory, expected)
    for layout in LAYOUTS[:-1]:  # what is none of them is taken for the last, without a look at all of it
        if layout.evaluation_set is not None and layout.recognises(place):
            return layout.evaluation_set(place, wanted)
    return of_folders(place, wanted)


OF_RECIPES: dict[str | None, Callable[[Path | None, Wanted], EvaluationSet]] = {
    "digits": of_digits,
    "cifar10-resnet18": images_in,
    "cifar100-resnet18": images_in,
    "folder-compact": images_in,
    "folder-resnet18": images_in,
    "imagenet-resnet18": images_in,
}
"""Recipes whose images are found without torch; the data set of any other is asked for its own."""
