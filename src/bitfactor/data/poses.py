"""Instances to find the keypoints of: cropped, moved at random, with heatmaps to learn from.

Leeds Sports Pose (Johnson & Everingham 2010, 2011), MPII Human Pose (Andriluka et al. 2014) in the split of
Tompson et al., COCO keypoints, and what is annotated in COCO's layout.
"""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.common.checks import check_fields, checked, expect, expect_that
from bitfactor.common.errors import InputError
from bitfactor.data.augment import MEAN, STD, generator
from bitfactor.data.in_memory import Batch, DataSet, options_of
from bitfactor.data.readers.annotations import MARGIN, lsp_parts, read_coco_parts, read_lsp, read_mpii
from bitfactor.data.readers.files import Holdout, expect_some
from bitfactor.data.readers.instances import (
    PAPER,
    CropMovement,
    Crops,
    Images,
    Indices,
    Instances,
    Labelled,
)
from bitfactor.data.readers.workers import in_order, usable_workers
from bitfactor.format import InputSpec, Skeleton
from bitfactor.pose import LSP, MPII, crop_matrix, encode

STRIDE = 4  # crop pixels per cell of a heatmap


@dataclass(frozen=True)
class PoseOptions(ABC):
    """Annotated instances."""

    size: int = 256
    """Side of a crop in pixels."""
    holdout: Holdout = "test"
    """What is evaluated on: the test part, or the last tenth of the others, to choose settings by."""
    rotation: float = PAPER.rotation
    """Degrees by which instances are turned in training, to either side."""
    zoom: float = PAPER.zoom
    """Fraction by which they grow or shrink."""
    mirror: bool = True
    """Mirror half of the instances in training."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of a crop."""
        return 3, self.size, self.size

    @property
    def movement(self) -> CropMovement:
        """How instances are moved in training."""
        return CropMovement(self.rotation, self.zoom, self.mirror)

    @abstractmethod
    def __call__(self, directory: Path | None) -> DataSet:
        """Load the annotations."""


Annotations = tuple[Instances, Instances, Skeleton, CropMovement]
"""Who is to be trained on and who is in the test part, their skeleton, and how they are moved."""


@dataclass(frozen=True)
class PoseData(ABC):
    """Instances with keypoints, to train on and to test on.

    An input is a square crop of `size` pixels, (N, 3, size, size); black where the image ends. In training
    the person is moved. The default is that of the paper: turned by up to 30 degrees and scaled by 0.7 to
    1.3. A target has

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
    movement: CropMovement = PAPER
    test_name: str = "instances of the test set"
    defaults: ClassVar[PoseOptions]
    kept: ClassVar[bool] = False  # all decoded images, so that workers are of no use

    @classmethod
    @checked
    def load(
        cls,
        directory: Path | None,
        options: PoseOptions | None = None,
        *,
        limit: int | None = None,
        workers: int | None = None,
        **named: Any,
    ) -> Self:
        """Read the annotations and find the images, which are decoded when they are first used.

        Parameters
        ----------
        directory
            The one that holds them.
        options
            What else there is to choose; options can be named one by one as well.
        limit
            At most so many instances to train on, and as many in the test set.
        workers
            Processes that read and crop images. By default one per core; none for `Lsp`, which keeps its
            images.
        """
        if limit is not None:
            expect_some("limit", limit)
        expect_that(workers is None or workers >= 0, "workers", expected="0 or more", found=workers)
        chosen = options_of(options, cls.defaults, named)
        train, test, skeleton, movement = cls._annotations(directory, chosen)
        name = f"instances of the test set in {directory}"
        if chosen.holdout == "validation":
            images = [*dict.fromkeys(train.images)]  # whole ones, which may show several people
            last = {*images[len(images) - len(images) // 10 :]}
            held = np.array([image in last for image in train.images], bool)
            train, test = train.take(np.flatnonzero(~held)), train.take(np.flatnonzero(held))
            name = f"instances for validation (of a tenth of the images to train on in {directory})"
        train, test = (cls._croppable(part).take(slice(limit)).check(directory) for part in (train, test))
        return cls(
            train,
            test,
            skeleton,
            chosen.size,
            Images(cls.kept),
            workers if workers is not None else 0 if cls.kept else usable_workers(),
            sigma=getattr(chosen, "sigma", 1.0),
            movement=movement,
            test_name=name,
        )

    @classmethod
    @abstractmethod
    def _annotations(cls, directory: Path | None, options: Any) -> Annotations:
        """Return what the files of the directory say."""

    @classmethod
    def _croppable(cls, instances: Instances) -> Instances:
        """Return those that have a crop: all, if not said otherwise."""
        return instances

    def __post_init__(self) -> None:
        expect("size of a crop", self.size, int)
        fits = self.size >= 4 * STRIDE and not self.size % STRIDE
        expected = f"a multiple of {STRIDE} from {4 * STRIDE} on"
        expect_that(fits, "size of a crop", expected=expected, found=self.size)

        # Narrower ones fall between the cells, and nothing of them is left.
        expect_that(0.2 <= self.sigma <= 10, "--sigma", expected="0.2 to 10 cells", found=self.sigma)

    @property
    def labels(self) -> tuple[str, ...]:
        """No classes."""
        return ()

    @property
    def input_spec(self) -> InputSpec:
        """How a crop becomes an input."""
        size = (self.size, self.size)
        return InputSpec(size=size, resize=size, mean=MEAN, std=STD)

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
        self._expect_images()
        order = torch.randperm(len(self.train), generator=generator(seed, epoch, 0)).numpy()
        batches = order[: self.steps(batch_size) * batch_size].reshape(-1, batch_size)[start:, rank::world]
        yield from self._batches(self.train, batches, (seed, epoch))

    def test_batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yield the instances of the test set in order."""
        expect_some("batch_size", batch_size)
        mine = np.arange(len(self.test))[rank::world]
        batches = [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]
        yield from self._batches(self.test, batches, None)

    def _expect_images(self) -> None:
        """Raise InputError where images are missing, also of the test set, before a step is taken."""
        wanted = {*self.train.images, *self.test.images}
        folders = {image.parent for image in wanted}
        there = {folder: {*os.listdir(folder)} if folder.is_dir() else set() for folder in folders}
        missing = sorted(image for image in wanted if image.name not in there[image.parent])
        if missing:
            raise InputError(
                missing[0],
                expected=f"the {len(wanted):,} images that are annotated",
                found=f"{len(missing):,} of them missing, this one first",
                fix="unpack all of them, or correct the annotations",
            )

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

    def _target(self, found: Labelled) -> dict[str, Tensor]:
        cells = (self.size // STRIDE, self.size // STRIDE)
        heatmaps, weight = encode(found.keypoints, found.labelled, cells, STRIDE, self.sigma)
        arrays = {"heatmaps": heatmaps, "weight": weight, **vars(found)}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _inputs(crops: Tensor) -> Tensor:
    """Normalise (N, H, W, 3) of 0..255 into (N, 3, H, W), as `bitfactor.pose.images.normalise` does."""
    channels = crops.permute(0, 3, 1, 2).contiguous().float().div_(255)
    mean, std = (torch.tensor(values, device=crops.device).view(3, 1, 1) for values in (MEAN, STD))
    return channels.sub_(mean).div_(std)


@dataclass(frozen=True)
class LspOptions(PoseOptions):
    """The instances of Leeds Sports Pose, or of its extension."""

    size: int = 128
    """Side of a crop in pixels."""
    margin: float = MARGIN
    """Side of the crop, in the image, by how far the person's keypoints extend."""
    sigma: float = 1.0
    """Standard deviation of the heatmaps' Gaussians, in cells."""

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_that(self.margin > 0, "--margin", expected="a number above 0", found=self.margin)

    def __call__(self, directory: Path | None) -> DataSet:
        return Lsp.load(directory, self)


class Lsp(PoseData):
    """LSP (2,000 images) or LSP extended (10,000), whichever the directory holds.

    The last 1,000 images are the test set: of LSP the official one; the extension has no official split. A
    person's crop is a square around the labelled keypoints, `margin` times as wide as they extend. Errors are
    measured by the torso, from the right shoulder to the left hip. Instances that lack a label of one of
    these are not evaluated. Instances with fewer than two labelled keypoints are left out.

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

    defaults, kept = LspOptions(), True

    @classmethod
    def _annotations(cls, directory: Path | None, options: LspOptions) -> Annotations:
        return *lsp_parts(read_lsp(directory, options.margin)), LSP, options.movement

    @classmethod
    def _croppable(cls, instances: Instances) -> Instances:
        """Leave out those with fewer than two labelled keypoints, around whom there is no box."""
        return instances.take(np.flatnonzero(instances.side > 0))


@dataclass(frozen=True)
class MpiiOptions(PoseOptions):
    """MPII's instances."""

    def __call__(self, directory: Path | None) -> DataSet:
        return Mpii.load(directory, self)


class Mpii(PoseData):
    """MPII, 22,246 instances to train on and 2,958 to test on, whichever form of its annotations is at hand.

    The directory holds `images/`, and beside it, or in `annot/` or `annotations/`, one of

    - `train.json` and `valid.json` of HRNet, or `mpii_train.json` and `mpii_val.json` of mmpose;
    - `train.h5` and `valid.h5` of pose-hg-train;
    - the official `mpii_human_pose_v1_u12_1.mat` together with `detections_our_format.mat`.

    `detections_our_format.mat` (HRNet: `gt_valid.mat`, mmpose: `mpii_gt_val.mat`) gives keypoints and head
    sizes of the test instances, where it is there. Published figures are computed by it. The other files
    differ for some. The official file does not tell the split: that one does.

    A person's crop is that of all published networks: 1.25 * 200 * scale wide, 15 * scale below the centre.
    Errors are measured by the head, 0.6 times the diagonal of its box.

    Example
    -------
    >>> data = Mpii.load(Path("mpii"))     # mpii/images/015601864.jpg ..., mpii/annot/train.json ...
    >>> len(data.train), len(data.test)
    (22246, 2958)
    """

    defaults = MpiiOptions()

    @classmethod
    def _annotations(cls, directory: Path | None, options: PoseOptions) -> Annotations:
        return *read_mpii(directory), MPII, options.movement


@dataclass(frozen=True)
class CocoOptions(PoseOptions):
    """Instances in COCO's layout, of any skeleton."""

    def __call__(self, directory: Path | None) -> DataSet:
        return CocoKeypoints.load(directory, self)


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

    defaults = CocoOptions()

    @classmethod
    def _annotations(cls, directory: Path | None, options: PoseOptions) -> Annotations:
        train, test, skeleton, unmirrored = read_coco_parts(directory)
        movement = options.movement
        if unmirrored and movement.mirror:
            warnings.warn(unmirrored, stacklevel=2)
            movement = replace(movement, mirror=False)
        return train, test, skeleton, movement
