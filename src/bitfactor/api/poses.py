"""How well a network finds keypoints: keypoint by keypoint, and person by person.

With a page of those whose keypoints it found best and worst.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.api.evaluate import Evaluation, other_images
from bitfactor.api.network import Network
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import unpaired
from bitfactor.data.poses import STRIDE, PoseData
from bitfactor.data.readers.identity import identity_of
from bitfactor.pose import decode, flip_maps
from bitfactor.pose.pck import Score, mean_name, score_document, score_table
from bitfactor.study.documents import Chapter, Document, Person, Prose, facts, instances, write_html
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
class PoseSet:
    """A network, and the instances to find the keypoints of; `images` says who they are."""

    network: Network
    task: PoseEstimation
    data: PoseData
    images: str
    notes: tuple[str, ...]


def instances_of(
    network: Network, data: str | os.PathLike[str] | None = None, limit: int | None = None
) -> PoseSet:
    """Return the instances whose keypoints a network is to find: those of its recipe's data set."""
    recipe, directory = network.full_recipe(), network.directory(data)
    found = recipe.data(directory)
    if not isinstance(recipe.task, PoseEstimation) or not isinstance(found, PoseData):
        raise InputError(
            network.path,
            expected=f"instances to find the keypoints of from the recipe {recipe.name}",
            found=type(found).__name__,
            fix="evaluate a network whose data set is a PoseData",
        )
    ours, theirs = network.keypoints, found.skeleton.keypoints
    if ours and {*ours} == {*theirs} and ours != theirs:
        expected, fix = "keypoints in the order of the data's", "order those of the data as the network's"
        raise InputError(network.path, expected=expected, found=", ".join(ours), fix=fix)
    task = recipe.adapted(found).task
    assert isinstance(task, PoseEstimation)
    notes = other_images(network, identity_of(found, directory)["fingerprint"])
    total, name = len(found.test), found.test_name
    if limit is None or limit >= total:
        return PoseSet(network, task, found, f"{total:,} {name}", notes)
    cut = replace(found, test=found.test.take(slice(limit)))
    return PoseSet(network, task, cut, f"the first {limit:,} of {total:,} {name}", notes)


def find_keypoints(instances: PoseSet, *, flip: bool = False) -> PoseEvaluation:
    """Find the keypoints of instances; with `flip`, of each image and of its mirror image."""
    network, task, skeleton = instances.network, instances.task, instances.data.skeleton
    if flip and not instances.data.movement.mirror and (why := unpaired(skeleton)):
        raise InputError(
            "--flip",
            expected="keypoints whose partners on the other side are known",
            found=why,
            fix="leave it out, or name flip_pairs in the skeleton.json of the data set",
        )
    metric = task.found()
    parts: list[tuple[NDArray[Any], ...]] = []
    for inputs, target in instances.data.test_batches(_BATCH):
        assert not isinstance(target, Tensor)
        maps = network.outputs(inputs.numpy())
        if flip:
            maps = (maps + flip_maps(network.outputs(inputs.flip(3).numpy()), skeleton)) / 2
        metric.update(torch.from_numpy(maps), target)
        found = decode(maps, STRIDE, task.scale)
        parts.append((*found, *(target[name].numpy() for name in ("keypoints", "labelled", "norm"))))
    points, confidence, truth, labelled, norm = (np.concatenate(part) for part in zip(*parts, strict=True))
    path, images, notes = network.path, instances.images, instances.notes
    return PoseEvaluation(
        path, images, notes, metric.score(), points, confidence, truth, labelled, norm, flip
    )


def evaluate_poses(
    network: Network, data: str | os.PathLike[str] | None, limit: int | None, flip: bool, page: Path | None
) -> PoseEvaluation:
    """Find the keypoints in a network's data set, and write the page of examples if asked to."""
    instances = instances_of(network, data, limit)
    found = find_keypoints(instances, flip=flip)
    if page is not None:
        lead = Prose("run.j2")("poses", images=found.images)
        chapters = pose_chapters(instances, found, _SHOWN)
        write_html(Document(f"bitfactor: poses of {found.path}", [lead], [], chapters), page)
    return found


_SHOWN = 9  # instances in each part of the page


def pose_chapters(shown: PoseSet, outcome: PoseEvaluation, number: int) -> list[Chapter]:
    """Return how many keypoints were found, and whom the network does best, in the middle and worst with."""
    convention = outcome.score.convention
    name, values = f"{convention.name}@{convention.thresholds[0]}", outcome.score.means().items()
    groups = [(group, f"{100 * rates[0]:.2f} %") for group, rates in outcome.score.groups().items()]
    means = [(mean_name(outcome.score, mean), f"{100 * rates[0]:.2f} %") for mean, rates in values]
    say = Prose("run.j2")
    return [
        Chapter(f"Keypoints found: {name}", tables=[facts([*groups, *means])]),
        *(
            Chapter(title, [say("sides")], figures=instances(title.lower().replace(" ", "-"), found))
            for title, found in examples(shown, outcome, number).items()
        ),
    ]


def examples(shown: PoseSet, outcome: PoseEvaluation, number: int) -> dict[str, list[Person]]:
    """Return `number` instances whom the network does best, in the middle and worst with, by title."""
    errors = outcome.errors()
    order = np.argsort(errors)[: int(np.isfinite(errors).sum())]
    middle = max((len(order) - number) // 2, 0)
    parts = {
        "Best": order[:number],
        "In the middle": order[middle : middle + number],
        "Worst": order[-number:][::-1],
    }
    return {
        title: [_person(shown.data, outcome, int(i), errors[i]) for i in chosen]
        for title, chosen in parts.items()
    }


def _person(data: PoseData, outcome: PoseEvaluation, index: int, error: float) -> Person:
    image, matrix = data.test_image(index)
    labelled = outcome.labelled[index]
    distance = np.linalg.norm(outcome.keypoints[index] - outcome.truth[index], axis=1)
    near = distance <= outcome.score.convention.thresholds[0] * outcome.norm[index]
    return Person(
        image,
        matrix,
        data.size,
        data.skeleton,
        outcome.keypoints[index],
        outcome.confidence[index],
        np.where(labelled[:, None], outcome.truth[index], np.nan),
        f"{(near & labelled).sum()} of {labelled.sum()} found, mean error {error:.2f}",
    )
