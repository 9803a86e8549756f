"""Which layouts of directories are known: what is recognised, checked and evaluated, one entry for each."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.data.readers.annotations import (
    coco_files,
    has_mpii,
    lsp_parts,
    read_coco_parts,
    read_lsp,
    read_mpii,
)
from bitfactor.data.readers.check import (
    Advance,
    Findings,
    check_cifar,
    check_folder,
    check_pose,
    check_shards,
)
from bitfactor.data.readers.cifar import CIFAR10, CIFAR100, CifarLayout
from bitfactor.data.readers.evaluation_set import (
    EvaluationSet,
    Wanted,
    of_cifar,
    of_digits,
    of_folders,
    of_shards,
)
from bitfactor.data.readers.files import Tree, existing, parts
from bitfactor.data.readers.shard import DESCRIPTION


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
    Layout("MPII: images/ and its annotations", has_mpii, partial(check_pose, name="MPII", read=read_mpii)),
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

    Of CIFAR's files and of shards the test part; of a directory with `val/` or `test/`, in any usual
    spelling, the images there; of class directories alone all images, unless they are those that the network
    was trained with: then the tenth that was not. With `holdout="validation"` a tenth of the training images.
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
    "folder-resnet18": images_in,
    "imagenet-resnet18": images_in,
}
"""Recipes whose images are found without torch; the data set of any other is asked for its own."""
