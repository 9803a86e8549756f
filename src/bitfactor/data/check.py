"""What is wrong with a directory of data, before a run finds out: its layout, and all of its files."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitfactor.checks import checked
from bitfactor.data import cifar_files
from bitfactor.data.annotations import coco_files, has_mpii, lsp_parts, read_coco_parts, read_lsp, read_mpii
from bitfactor.data.cifar_files import CIFAR10, CIFAR100, CifarFiles
from bitfactor.data.files import FileStore, Tree, existing, file_store, parts
from bitfactor.data.findings import Advance, Findings, inspect
from bitfactor.data.shard import DESCRIPTION, ShardStore, read_description, shards_of, user_cache
from bitfactor.errors import InputError
from bitfactor.pose.instances import Instances


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
        if layout.recognised(place):
            findings = layout.check(place, advance or (lambda done, total: None))
            findings.directory = str(directory)
            return findings
    raise InputError(
        directory,
        expected=f"one of the known layouts ({'; '.join(layout.name for layout in LAYOUTS)})",
        found="an unknown one",
        fix="name the directory that holds the files, or arrange them as one of these",
    )


def _check_cifar(layout: cifar_files.Layout, name: str) -> Callable[[Path, Advance], Findings]:
    def check(directory: Path, advance: Advance) -> Findings:
        findings, files = Findings(name), CifarFiles.at(directory, layout)
        batches = [("train", file) for file in layout.train] + [("test", layout.test)]
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
            advance(done, len(batches))
        return findings

    return check


def _check_shards(directory: Path, advance: Advance) -> Findings:
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
    return findings


def _check_folder(directory: Path, advance: Advance) -> Findings:
    findings = Findings("image folder")
    train, test = parts(directory)
    trees = {"train": Tree.scan(train)} | ({test.name: Tree.scan(test)} if test else {})
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
        for name in tree.others:
            findings.note("files that are no images by their names", f"{tree.directory}/{name}")
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


def _check_pose(name: str, read: Callable[[Path], Parts]) -> Callable[[Path, Advance], Findings]:
    def check(directory: Path, advance: Advance) -> Findings:
        findings = Findings(name)
        try:
            parts = dict(zip(("train", "test"), read(directory), strict=True))
        except InputError as error:
            findings.problem("unusable annotations", str(error))
            return findings
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
            _check_instances(part, instances, sizes, findings)
        return findings

    return check


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
    """A way in which data lie in a directory."""

    name: str
    recognised: Callable[[Path], bool]
    check: Callable[[Path, Advance], Findings]


LAYOUTS = (
    Layout("CIFAR-10 as cifar-10-batches-py", CIFAR10.is_in, _check_cifar(CIFAR10, "Cifar10")),
    Layout("CIFAR-100 as cifar-100-python", CIFAR100.is_in, _check_cifar(CIFAR100, "Cifar100")),
    Layout(
        f"WebDataset shards with {DESCRIPTION}", lambda place: (place / DESCRIPTION).is_file(), _check_shards
    ),
    Layout(
        "Leeds Sports Pose: joints.mat and images/",
        lambda place: (place / "joints.mat").is_file(),
        _check_pose("Leeds Sports Pose", lambda place: lsp_parts(read_lsp(place))),
    ),
    Layout(
        "COCO's keypoints: their annotations, train.json and val.json",
        lambda place: coco_files(place) is not None,
        _check_pose("COCO keypoints", lambda place: read_coco_parts(place)[:2]),
    ),
    Layout("MPII: images/ and its annotations", has_mpii, _check_pose("MPII", read_mpii)),
    Layout(
        "one directory of images for each class, in train/ and val/ or at once",
        lambda place: sum(map(bool, Tree.scan(parts(place)[0]).classes.values())) > 1,
        _check_folder,
    ),
)
