"""MPII Human Pose: everyday life, 16 keypoints (Andriluka et al. 2014), in the split of Tompson et al."""

from pathlib import Path
from typing import Self

from bitfactor.checks import checked
from bitfactor.data.annotations import read_mpii
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.data.workers import usable_workers
from bitfactor.pose import MPII


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
        parts = evaluation_part(*read_mpii(directory), holdout)
        train, test = (part.take(slice(limit)).check(directory) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, MPII, size, Images(False), workers, movement=movement, test_name=name)
