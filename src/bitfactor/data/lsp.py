"""Leeds Sports Pose and its extension: athletes with 14 keypoints (Johnson & Everingham 2010, 2011)."""

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import checked
from bitfactor.data.crops import PAPER, Images, Movement
from bitfactor.data.pose import PoseData, evaluation_part, expect_loadable, instances_name
from bitfactor.data.split import Holdout
from bitfactor.errors import InputError
from bitfactor.pose import LSP
from bitfactor.pose.files import need, read_mat
from bitfactor.pose.instances import Instances

MARGIN = 1.5  # side of the crop / extent of the keypoints
_HELD_OUT = 1000


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
        kept = max(len(instances) - _HELD_OUT, len(instances) // 2)
        parts = evaluation_part(instances.take(slice(kept)), instances.take(slice(kept, None)), holdout)
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


def read_lsp(directory: Path | None, margin: float = MARGIN) -> Instances:
    """Read everybody in a directory of LSP or its extension, in the order of the images' numbers.

    Where fewer than two keypoints are labelled, the side of the box is 0.

    Raises
    ------
    InputError
        If a file is missing or does not fit the others.
    """
    if directory is None:
        raise InputError(
            "--data",
            expected="the directory of LSP or LSP extended, with joints.mat and images/",
            found="none",
            fix="see http://sam.johnson.io/research/lspet.html for the files",
        )
    path = directory / "joints.mat"
    keypoints, labelled = _keypoints(path)
    images = tuple(sorted((directory / "images").glob("im*.jpg")))
    if len(images) != len(keypoints):
        raise InputError(
            directory / "images",
            expected=f"{len(keypoints)} images im*.jpg, as joints.mat has instances",
            found=str(len(images)),
            fix="unpack the archive again",
        )
    low = keypoints.min(1, where=labelled[..., None], initial=np.inf)
    high = keypoints.max(1, where=labelled[..., None], initial=-np.inf)
    low[~labelled.any(1)] = high[~labelled.any(1)] = 0
    shoulder, hip = LSP.keypoints.index("right_shoulder"), LSP.keypoints.index("left_hip")
    torso = np.linalg.norm(keypoints[:, shoulder] - keypoints[:, hip], axis=1)
    return Instances(
        images,
        centre=(low + high) / 2,
        side=margin * (high - low).max(1),
        keypoints=keypoints,
        labelled=labelled,
        norm=np.where(labelled[:, shoulder] & labelled[:, hip], torso, np.nan),
    )


def _boxed(instances: Instances) -> Instances:
    """Leave out those with fewer than two labelled keypoints, around whom there is no box."""
    return instances.take(np.flatnonzero(instances.side > 0))


def _keypoints(path: Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return keypoints (N, 14, 2) and which are labelled, (N, 14)."""
    (table,) = need(read_mat(path), ("joints",), path)
    table = np.asarray(table)
    if table.shape[:2] == (14, 3) and table.ndim == 3:  # the extension
        rows = table.transpose(2, 0, 1).astype(np.float64)
        return rows[..., :2], rows[..., 2] == 1
    if table.shape[:2] == (3, 14) and table.ndim == 3:  # LSP
        rows = table.transpose(2, 1, 0).astype(np.float64)
        return rows[..., :2], np.ones(rows.shape[:2], bool)
    raise InputError(
        path,
        expected="joints of shape (14, 3, N) or (3, 14, N)",
        found=f"shape {table.shape}",
        fix="give joints.mat as its authors distribute it",
    )
