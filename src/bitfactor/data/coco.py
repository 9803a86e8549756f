"""COCO keypoints, and instances or things of one's own in the same layout."""

from pathlib import Path
from typing import Self

from bitfactor.checks import checked
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.data.workers import usable_workers
from bitfactor.errors import InputError
from bitfactor.format import Skeleton
from bitfactor.pose import COCO, read_skeleton
from bitfactor.pose.coco import read_coco, skeleton_in


class CocoKeypoints(PoseData):
    """Keypoints in COCO's JSON layout: those of COCO 2017, or annotations of one's own with any skeleton.

    The directory holds one of

    - `annotations/person_keypoints_train2017.json` and `..._val2017.json`, `train2017/` and `val2017/`;
    - `train.json` and `val.json`, and `images/`.

    The skeleton is that of a file `skeleton.json` beside them (see `bitfactor.pose.read_skeleton`), or else
    of the category that the training file describes, or else COCO's. Errors are measured by the longer side
    of a person's box.

    Example
    -------
    >>> data = CocoKeypoints.load(Path("cats"), size=128)      # cats/train.json, cats/val.json, cats/images/
    >>> data.skeleton.keypoints
    ('left_paw', 'right_paw', 'nose')
    """

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        size: int = 256,
        limit: int | None = None,
        holdout: Holdout = "test",
        workers: int | None = None,
        movement: Movement = PAPER,
    ) -> Self:
        """Read the annotations.

        Parameters
        ----------
        directory
            The one that holds them.
        size
            Side of a crop in pixels.
        limit
            At most so many instances to train on, and as many in the test set.
        holdout
            "validation" takes the last tenth of the training part in place of the other file.
        workers
            Processes that read and crop images; one per core if not given.
        movement
            How instances are moved in training.

        Raises
        ------
        InputError
            If a file is missing, cannot be read, or does not fit the skeleton.
        """
        expect_loadable(limit, workers)
        (train_file, train_images), (test_file, test_images) = _parts(directory)
        skeleton = _skeleton(train_file)
        train = read_coco(train_file, train_images, skeleton)
        test = read_coco(test_file, test_images, skeleton)
        parts = evaluation_part(train, test, holdout)
        train, test = (part.take(slice(limit)) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, skeleton, size, Images(False), workers, movement=movement, test_name=name)


def _parts(directory: Path | None) -> list[tuple[Path, Path]]:
    """Return annotations and images of both parts."""
    if directory is not None:
        official = directory / "annotations"
        layouts = (
            [(official / f"person_keypoints_{p}2017.json", directory / f"{p}2017") for p in ("train", "val")],
            [(directory / f"{part}.json", directory / "images") for part in ("train", "val")],
        )
        for parts in layouts:
            if all(file.is_file() for file, _ in parts):
                return parts
    raise InputError(
        directory or "--data",
        expected="annotations/person_keypoints_train2017.json and _val2017.json, or train.json and val.json",
        found="neither" if directory is not None and directory.is_dir() else "no such directory",
        fix="unpack COCO's annotations there, or write your own in their layout",
    )


def _skeleton(train_file: Path) -> Skeleton:
    own = train_file.with_name("skeleton.json")
    if own.is_file():
        return read_skeleton(own)
    described = skeleton_in(train_file)
    return COCO if described is None or described.keypoints == COCO.keypoints else described
