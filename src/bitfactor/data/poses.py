"""Instances to find the keypoints of: cropped, moved at random, with heatmaps to learn from.

Leeds Sports Pose and its extension: athletes with 14 keypoints (Johnson & Everingham 2010, 2011).

MPII Human Pose: everyday life, 16 keypoints (Andriluka et al. 2014), in the split of Tompson et al.

COCO keypoints, and instances or things of one's own in the same layout.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.data.augment import generator
from bitfactor.data.dataset import Batch
from bitfactor.data.readers.annotations import MARGIN, lsp_parts, read_coco_parts, read_lsp, read_mpii
from bitfactor.data.readers.crops import PAPER, Crops, CropTargets, Images, Indices, Movement
from bitfactor.data.readers.files import Holdout, expect_some
from bitfactor.data.readers.instances import Instances
from bitfactor.data.readers.workers import in_order, usable_workers
from bitfactor.format import InputSpec, Skeleton
from bitfactor.pose import LSP, MPII, crop_matrix, encode

STRIDE = 4  # crop pixels per cell of a heatmap

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours


@dataclass(frozen=True)
class PoseData:
    """Instances with keypoints, to train on and to test on.

    An input is a square crop of `size` pixels, (N, 3, size, size); black where the image ends. In training
    the person is moved: turned by up to 30 degrees and scaled by 0.7 to 1.3, as in the paper, if not said
    otherwise. A target has

    - `heatmaps` (N, J, size / 4, size / 4): what to learn, see `bitfactor.pose.encode`;
    - `weight` (N, J): 1 where a heatmap shows a keypoint;
    - `keypoints` (N, J, 2), x and y in pixels of the crop, and `labelled` (N, J): which of them are known;
    - `norm` (N,): the length by which errors are measured, in pixels of the crop; NaN if unknown.

    Parameters
    ----------
    train, test
        The instances.
    skeleton
        Their keypoints.
    size
        Side of a crop in pixels, a multiple of 4.
    images
        Where their images come from.
    workers
        Processes that read and crop; with 0 it is done in between the steps.
    sigma
        Width of the Gaussians in cells of the heatmap.
    device
        Where batches are delivered.
    movement
        How instances are moved in training.
    test_name
        Who the instances of `test` are.
    """

    train: Instances
    test: Instances
    skeleton: Skeleton
    size: int
    images: Images
    workers: int
    sigma: float = 1.0
    device: torch.device | str = "cpu"
    movement: Movement = PAPER
    test_name: str = "instances of the test set"

    def __post_init__(self) -> None:
        if self.size < 4 * STRIDE or self.size % STRIDE:
            raise InputError(
                "size of a crop",
                expected=f"a multiple of {STRIDE} from {4 * STRIDE} on",
                found=str(self.size),
                fix="change it",
            )

        # Narrower ones fall between the cells, and nothing of them is left.
        if not 0.2 <= self.sigma <= 10:
            raise InputError("--sigma", expected="0.2 to 10 cells", found=str(self.sigma), fix="change it")

    @property
    def labels(self) -> tuple[str, ...]:
        """No classes."""
        return ()

    @property
    def input_spec(self) -> InputSpec:
        """How a crop becomes an input."""
        size = (self.size, self.size)
        return InputSpec(size=size, resize=size, mean=_MEAN, std=_STD)

    def to(self, device: torch.device | str) -> Self:
        """Return the same data set with batches on `device`; pixels travel there as bytes."""
        return replace(self, device=device)

    def steps(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch."""
        return len(self.train) // expect_some("batch_size", batch_size)

    def train_batches(
        self, batch_size: int, seed: int, epoch: int, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on, shuffled and augmented.

        How a person is moved depends on (seed, epoch, which person it is) alone.
        """
        order = torch.randperm(len(self.train), generator=generator(seed, epoch, 0)).numpy()
        batches = order[: self.steps(batch_size) * batch_size].reshape(-1, batch_size)[start:, rank::world]
        yield from self._batches(self.train, batches, (seed, epoch))

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the instances of the test set in order."""
        expect_some("batch_size", batch_size)
        mine = np.arange(len(self.test))[rank::world]
        batches = [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]
        yield from self._batches(self.test, batches, None)

    def test_image(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Return the whole image of a test person, (H, W, 3) RGB, and its crop's matrix, (2, 3)."""
        instances = self.test
        matrix = crop_matrix(instances.centre[index], instances.side[index], self.size)
        return instances.pixels(index, self.images), matrix

    def _batches(
        self, instances: Instances, batches: Sequence[Indices] | Indices, key: tuple[int, int] | None
    ) -> Iterator[Batch]:
        self.images.fill(instances)
        work = Crops(instances, self.skeleton, self.size, self.images, batches, self.movement, key)
        shape = (max(map(len, batches), default=0), self.size, self.size, 3)
        for crops, found in in_order(work, range(len(batches)), shape, np.uint8, self.workers):
            pixels = torch.from_numpy(crops[: len(found.norm)]).to(self.device)
            yield _inputs(pixels), {name: t.to(self.device) for name, t in self._target(found).items()}

    def _target(self, found: CropTargets) -> dict[str, Tensor]:
        cells = (self.size // STRIDE, self.size // STRIDE)
        heatmaps, weight = encode(found.keypoints, found.labelled, cells, STRIDE, self.sigma)
        arrays = {
            "heatmaps": heatmaps,
            "weight": weight,
            "keypoints": found.keypoints,
            "labelled": found.labelled,
            "norm": found.norm,
        }
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def evaluation_part(train: Instances, test: Instances, holdout: Holdout) -> tuple[Instances, Instances]:
    """Return whom to train on and whom to evaluate on: `test`, or the last tenth of `train`."""
    if holdout == "test":
        return train, test
    kept = len(train) - len(train) // 10
    return train.take(slice(kept)), train.take(slice(kept, None))


def instances_name(directory: Path | None, holdout: Holdout) -> str:
    """Return what instances to evaluate on are called, for use after their number."""
    if holdout == "test":
        return f"instances of the test set in {directory}"
    return f"instances for validation (a tenth of those to train on in {directory})"


def expect_loadable(limit: int | None, workers: int | None) -> None:
    """Raise InputError where a limit is below 1 or there are fewer than no workers."""
    if limit is not None:
        expect_some("limit", limit)
    if workers is not None and workers < 0:
        raise InputError("workers", expected="0 or more", found=str(workers), fix="change it")


def _inputs(crops: Tensor) -> Tensor:
    """Normalise (N, H, W, 3) of 0..255 into (N, 3, H, W), as `bitfactor.pose.images.normalise` does."""
    channels = crops.permute(0, 3, 1, 2).contiguous().float().div_(255)
    mean, std = (torch.tensor(values, device=crops.device).view(3, 1, 1) for values in (_MEAN, _STD))
    return channels.sub_(mean).div_(std)


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
        """
        expect_loadable(limit, workers)
        parts = evaluation_part(*read_mpii(directory), holdout)
        train, test = (part.take(slice(limit)).check(directory) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, MPII, size, Images(False), workers, movement=movement, test_name=name)


class CocoKeypoints(PoseData):
    """Keypoints in COCO's JSON layout: those of COCO 2017, or annotations of one's own with any skeleton.

    The directory holds one of

    - `annotations/person_keypoints_train2017.json` and `..._val2017.json`, `train2017/` and `val2017/`;
    - `train.json` and `val.json`, and `images/`.

    The skeleton is that of a file `skeleton.json` beside them (see `bitfactor.pose.read_skeleton`), or else
    of the category that the training file describes, or else COCO's. Keypoints whose names differ in left and
    right alone swap in a mirrored image; where none do, images are not mirrored, which a warning says. The
    flip pairs of `skeleton.json` come before the names. Errors are measured by the longer side
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
        """
        expect_loadable(limit, workers)
        train, test, skeleton, unmirrored = read_coco_parts(directory)
        if unmirrored and movement.mirror:
            warnings.warn(unmirrored, stacklevel=2)
            movement = replace(movement, mirror=False)
        parts = evaluation_part(train, test, holdout)
        train, test = (part.take(slice(limit)) for part in parts)
        workers = usable_workers() if workers is None else workers
        name = instances_name(directory, holdout)
        return cls(train, test, skeleton, size, Images(False), workers, movement=movement, test_name=name)
