"""How well a network finds keypoints: keypoint by keypoint, and person by person."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.api.evaluation import Evaluation
from bitfactor.api.images import other_images
from bitfactor.api.network import Network
from bitfactor.api.scores import score_document, score_table
from bitfactor.data.identity import identity_of
from bitfactor.data.pose import STRIDE, PoseData
from bitfactor.errors import InputError
from bitfactor.pose import decode, flip_maps
from bitfactor.pose.pck import Score
from bitfactor.training import PoseEstimation

_BATCH = 256


@dataclass(frozen=True)
class PoseEvaluation(Evaluation):
    """What was found in N crops of instances, in their pixels.

    `keypoints` and `truth` are (N, J, 2), `confidence` and `labelled` (N, J), `norm` (N,); `score` counts
    them. `flip` says whether heatmaps were averaged with those of mirrored images.
    """

    score: Score
    keypoints: NDArray[np.float64]
    confidence: NDArray[np.float64]
    truth: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float64]
    flip: bool

    def errors(self) -> NDArray[np.float64]:
        """Return each instance's mean distance over labelled keypoints by the norm, NaN where unknown."""
        distance = np.linalg.norm(self.keypoints - self.truth, axis=2) / self.norm[:, None]
        with np.errstate(invalid="ignore"):
            mean = np.where(self.labelled, distance, 0).sum(1) / self.labelled.sum(1)
        return np.asarray(mean)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        which = {"images": self.images, "notes": list(self.notes)}
        return {"instances": len(self.keypoints), "flip": self.flip, **which, **score_document(self.score)}

    def __str__(self) -> str:
        flipped = ", with their mirror images" * self.flip
        return "\n".join([score_table(self.score), f"{self.path}: {self.images}{flipped}", *self.noted()])


@dataclass(frozen=True)
class Instances:
    """A network, and the instances to find the keypoints of; `images` says who they are."""

    network: Network
    task: PoseEstimation
    data: PoseData
    images: str
    notes: tuple[str, ...]


def instances_of(
    network: Network, data: str | os.PathLike[str] | None = None, limit: int | None = None
) -> Instances:
    """Return the instances whose keypoints a network is to find: those of its recipe's data set.

    Raises
    ------
    InputError
        If its recipe is not known, or there are no such data.
    """
    recipe, directory = network.full_recipe(), network.directory(data)
    found = recipe.data(directory)
    if not isinstance(recipe.task, PoseEstimation) or not isinstance(found, PoseData):
        raise InputError(
            network.path,
            expected=f"instances to find the keypoints of from the recipe {recipe.name}",
            found=type(found).__name__,
            fix="evaluate a network whose data set is a PoseData",
        )
    notes = other_images(network, identity_of(found, directory)["fingerprint"])
    total, name = len(found.test), found.test_name
    if limit is None or limit >= total:
        return Instances(network, recipe.task, found, f"{total:,} {name}", notes)
    cut = replace(found, test=found.test.take(slice(limit)))
    return Instances(network, recipe.task, cut, f"the first {limit:,} of {total:,} {name}", notes)


def find_keypoints(instances: Instances, *, flip: bool = False) -> PoseEvaluation:
    """Find the keypoints of instances; with `flip`, of each image and of its mirror image."""
    network, task, skeleton = instances.network, instances.task, instances.data.skeleton
    metric = task.found()
    parts: list[tuple[NDArray[np.float64], ...]] = []
    for inputs, target in instances.data.test_batches(_BATCH):
        assert not isinstance(target, Tensor)
        maps = network.outputs(inputs.numpy())
        if flip:
            maps = (maps + flip_maps(network.outputs(inputs.flip(3).numpy()), skeleton)) / 2
        metric.update(torch.from_numpy(maps), target)
        found = decode(maps, STRIDE, task.scale)
        parts.append((*found, *(target[name].numpy() for name in ("keypoints", "labelled", "norm"))))
    keypoints, confidence, truth, labelled, norm = (np.concatenate(part) for part in zip(*parts, strict=True))
    return PoseEvaluation(
        network.path,
        instances.images,
        instances.notes,
        metric.score(),
        keypoints,
        confidence,
        truth,
        labelled.astype(bool),
        norm,
        flip,
    )


def evaluate_poses(
    network: Network,
    data: str | os.PathLike[str] | None,
    limit: int | None,
    flip: bool,
    page: Path | None,
) -> PoseEvaluation:
    """Find the keypoints in a network's data set, and write the page of examples if asked to."""
    instances = instances_of(network, data, limit)
    found = find_keypoints(instances, flip=flip)
    if page is not None:
        from bitfactor.api.pose_page import write_page  # imports matplotlib

        write_page(page, instances, found)
    return found
