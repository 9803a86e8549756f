"""Leeds Sports Pose and its extension: athletes with 14 keypoints (Johnson & Everingham 2010, 2011)."""

from pathlib import Path
from typing import Self

import numpy as np

from bitfactor.checks import checked
from bitfactor.data.annotations import MARGIN, lsp_parts, read_lsp
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.errors import InputError
from bitfactor.pose import LSP
from bitfactor.pose.instances import Instances


class Lsp(PoseData):
    """LSP (2,000 images) or LSP extended (10,000), whichever the directory holds.

    The last 1,000 images are the test set: of LSP the official one; the extension has no official
    split. A person's crop is a square around the labelled keypoints, `margin` times as wide as they extend.
    Errors are measured by the torso, from the right shoulder to the left hip; instances for whom one of these
    is not labelled are not evaluated. Instances with fewer than two labelled keypoints are left out.

    The third row of `joints.mat` says of the extension which keypoints are labelled; elsewhere its
    coordinates mean nothing. LSP's own third row marks with 1 the keypoints that are hidden: they are
    labelled all the same, and count.

    Example
    -------
    >>> data = Lsp.load(Path("lspet"), size=128)       # lspet/images/im00001.jpg ..., lspet/joints.mat
    >>> inputs, target = next(data.train_batches(32, seed=0, epoch=0))
    >>> inputs.shape, target["heatmaps"].shape
    (torch.Size([32, 3, 128, 128]), torch.Size([32, 14, 32, 32]))
    """

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        size: int = 128,
        limit: int | None = None,
        holdout: Holdout = "test",
        workers: int = 0,
        margin: float = MARGIN,
        movement: Movement = PAPER,
        sigma: float = 1.0,
    ) -> Self:
        """Read `joints.mat` and find the images; they are decoded when first used, and kept.

        Parameters
        ----------
        directory
            The one that holds `joints.mat` and `images/`.
        size
            Side of a crop in pixels.
        limit
            At most so many instances to train on, and as many in the test set.
        holdout
            "validation" takes the last tenth of the training part in place of the test part.
        workers
            Processes that crop; 0 for none.
        margin
            Side of the crop / extent of the keypoints.
        movement
            How instances are moved in training.
        sigma
            Standard deviation of the heatmaps' Gaussians, in cells.

        Raises
        ------
        InputError
            If a file is missing or does not fit the others, or the margin is none.
        """
        expect_loadable(limit, workers)
        if not 0 < margin < np.inf:
            raise InputError("--margin", expected="a number above 0", found=str(margin), fix="change it")
        instances = read_lsp(directory, margin)
        parts = evaluation_part(*lsp_parts(instances), holdout)
        train, test = (_boxed(part).take(slice(limit)).check(directory) for part in parts)
        return cls(
            train,
            test,
            LSP,
            size,
            Images(keep=True),
            workers,
            sigma=sigma,
            movement=movement,
            test_name=instances_name(directory, holdout),
        )


def _boxed(instances: Instances) -> Instances:
    """Leave out those with fewer than two labelled keypoints, around whom there is no box."""
    return instances.take(np.flatnonzero(instances.side > 0))
