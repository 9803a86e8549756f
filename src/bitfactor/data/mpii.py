"""MPII Human Pose: everyday life, 16 keypoints (Andriluka et al. 2014), in the split of Tompson et al."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from bitfactor.checks import checked
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.data.workers import usable_workers
from bitfactor.errors import InputError
from bitfactor.pose import MPII
from bitfactor.pose.instances import Instances
from bitfactor.pose.mpii import corrected, find, read_mpii_h5, read_mpii_json, read_mpii_mat, read_truth

_FOLDERS = (".", "annot", "annotations", "mpii_human_pose_v1_u12_2")
_PAIRS = (
    ("train.json", "valid.json"),  # HRNet
    ("mpii_train.json", "mpii_val.json"),  # mmpose
    ("train.h5", "valid.h5"),  # pose-hg-train
)
_TRUTHS = ("detections_our_format.mat", "gt_valid.mat", "mpii_gt_val.mat")
_OFFICIAL = "mpii_human_pose*.mat"


class Mpii(PoseData):
    """MPII, 22,246 instances to train on and 2,958 to test on, whichever form of its annotations is at hand.

    The directory holds `images/`, and beside it, or in `annot/` or `annotations/`, one of

    - `train.json` and `valid.json` of HRNet, or `mpii_train.json` and `mpii_val.json` of mmpose;
    - `train.h5` and `valid.h5` of pose-hg-train;
    - the official `mpii_human_pose_v1_u12_1.mat` together with `detections_our_format.mat`.

    Where `detections_our_format.mat` is there (HRNet: `gt_valid.mat`, mmpose: `mpii_gt_val.mat`), keypoints
    and head sizes of the test instances are those of that file, by which published figures are computed; the
    other files differ for some. The official file does not tell the split: that one does.

    A person's crop is that of all published networks: 1.25 * 200 * scale wide, 15 * scale below the centre.
    Errors are measured by the head, 0.6 times the diagonal of its box.

    Example
    -------
    >>> data = Mpii.load(Path("mpii"))     # mpii/images/015601864.jpg ..., mpii/annot/train.json ...
    >>> len(data.train), len(data.test)
    (22246, 2958)
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
            The one that holds `images/`.
        size
            Side of a crop in pixels.
        limit
            At most so many instances to train on, and as many in the test set.
        holdout
            "validation" takes the last tenth of the training part in place of Tompson's 2,958.
        workers
            Processes that read and crop images; one per core if not given.
        movement
            How instances are moved in training.

        Raises
        ------
        InputError
            If a file is missing or cannot be read.
        """
        expect_loadable(limit, workers)
        if directory is None or not directory.is_dir():
            raise _missing(directory)
        parts = evaluation_part(*read_mpii(directory), holdout)
        train, test = (part.take(slice(limit)).check(directory) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, MPII, size, Images(False), workers, movement=movement, test_name=name)


def read_mpii(directory: Path) -> tuple[Instances, Instances]:
    """Read whichever form of the annotations `directory` holds: the instances to train on, and those to test
    on.

    Raises
    ------
    InputError
        If there is none, or a file cannot be read.
    """
    images = directory / "images"
    truths = [path for name in _TRUTHS for path in _found(directory, name)]
    truth = read_truth(truths[0]) if truths else None
    for names in _PAIRS:
        pair = [path for name in names for path in _found(directory, name)[:1]]
        if len(pair) == 2:
            reader = read_mpii_json if pair[0].suffix == ".json" else read_mpii_h5
            train, test = (reader(path, images) for path in pair)
            if truth is not None:
                test = _scored(corrected(test, truth), len(test), directory)
            return train, test
    for path in _found(directory, _OFFICIAL):
        if truth is None:
            raise InputError(
                directory,
                expected=f"{_TRUTHS[0]} beside {path.name}: it tells who is in the test set",
                found="none",
                fix="get it from https://github.com/anibali/eval-mpii-pose, or use the annotations of HRNet",
            )
        instances, single = read_mpii_mat(path, images)
        known = find(instances, truth)
        training = np.setdiff1d(np.flatnonzero(single), known)
        return instances.take(training), _scored(corrected(instances, truth), len(truth.norm), directory)
    raise _missing(directory)


def _scored(found: Instances, expected: int, directory: Path) -> Instances:
    if len(found) < 0.99 * expected:
        raise InputError(
            directory,
            expected=f"the same {expected} test instances in the annotations and in {_TRUTHS[0]}",
            found=f"{len(found)} of them in both",
            fix="give files of the same split",
        )
    return found


def _found(directory: Path, pattern: str) -> list[Path]:
    def paths() -> Iterator[Path]:
        for folder in _FOLDERS:
            yield from sorted((directory / folder).glob(pattern))

    return list(paths())


def _missing(directory: Path | None) -> InputError:
    forms = "; ".join((*(" and ".join(pair) for pair in _PAIRS), f"{_OFFICIAL} and {_TRUTHS[0]}"))
    return InputError(
        directory or "--data",
        expected=f"images/ and the annotations of MPII, here or in annot/: {forms}",
        found="none" if directory is None or directory.is_dir() else "no such directory",
        fix="get images and annotations from http://human-pose.mpi-inf.mpg.de or the annotations from HRNet",
    )
