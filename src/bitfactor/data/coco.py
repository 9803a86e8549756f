"""COCO keypoints, and instances or things of one's own in the same layout."""

from pathlib import Path
from typing import Self

from bitfactor.checks import checked
from bitfactor.data.annotations import read_coco_parts
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.data.workers import usable_workers


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
        train, test, skeleton = read_coco_parts(directory)
        parts = evaluation_part(train, test, holdout)
        train, test = (part.take(slice(limit)) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, skeleton, size, Images(False), workers, movement=movement, test_name=name)
