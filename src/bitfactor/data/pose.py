"""Instances to find the keypoints of: cropped, moved at random, with heatmaps to learn from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.data.augment import generator
from bitfactor.data.crops import PAPER, Crops, Found, Images, Indices, Movement
from bitfactor.data.dataset import Batch
from bitfactor.data.split import Holdout, expect_some
from bitfactor.data.workers import in_order
from bitfactor.errors import InputError
from bitfactor.format import InputSpec, Skeleton
from bitfactor.pose import crop_matrix, encode
from bitfactor.pose.instances import Instances

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
        return self.images[instances.images[index]], matrix

    def _batches(
        self, instances: Instances, batches: Sequence[Indices] | Indices, key: tuple[int, int] | None
    ) -> Iterator[Batch]:
        self.images.fill(instances)
        work = Crops(instances, self.skeleton, self.size, self.images, batches, self.movement, key)
        shape = (max(map(len, batches), default=0), self.size, self.size, 3)
        for crops, found in in_order(work, range(len(batches)), shape, np.uint8, self.workers):
            pixels = torch.from_numpy(crops[: len(found.norm)]).to(self.device)
            yield _inputs(pixels), {name: t.to(self.device) for name, t in self._target(found).items()}

    def _target(self, found: Found) -> dict[str, Tensor]:
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
    """Normalise (N, H, W, 3) of 0..255 into (N, 3, H, W), as `bitfactor.images.normalise` does."""
    channels = crops.permute(0, 3, 1, 2).contiguous().float().div_(255)
    mean, std = (torch.tensor(values, device=crops.device).view(3, 1, 1) for values in (_MEAN, _STD))
    return channels.sub_(mean).div_(std)
