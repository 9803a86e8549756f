"""How well a network finds joints: joint by joint, and person by person."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.cli.evaluation import Arguments
from bitfactor.cli.output import print_json
from bitfactor.cli.pckh import print_score, score_document
from bitfactor.cli.subject import Subject, held_out
from bitfactor.data.pose import STRIDE, PoseData
from bitfactor.pose import decode, flip_maps
from bitfactor.pose.pck import Score
from bitfactor.training import PoseEstimation
from bitfactor.training.limited import Limited


@dataclass(frozen=True)
class Outcome:
    """What was found in N held-out crops, in their pixels.

    `joints` and `truth` are (N, J, 2), `confidence` and `labelled` (N, J), `norm` (N,); `score` counts them.
    """

    score: Score
    joints: NDArray[np.float64]
    confidence: NDArray[np.float64]
    truth: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float64]

    def errors(self) -> NDArray[np.float64]:
        """Return each person's mean distance over labelled joints, by the norm; NaN where that is unknown."""
        distance = np.linalg.norm(self.joints - self.truth, axis=2) / self.norm[:, None]
        with np.errstate(invalid="ignore"):
            mean = np.where(self.labelled, distance, 0).sum(1) / self.labelled.sum(1)
        return np.asarray(mean)


def people_of(subject: Subject) -> PoseData:
    """Return the data set behind a subject, whole."""
    data = subject.data.whole if isinstance(subject.data, Limited) else subject.data
    assert isinstance(data, PoseData)
    return data


def find_joints(subject: Subject, *, flip: bool = False) -> Outcome:
    """Find the joints of the held-out people; with `flip`, of each picture and of its mirror image."""
    task, skeleton = subject.recipe.task, people_of(subject).skeleton
    assert isinstance(task, PoseEstimation)
    metric = task.measure(scale=task.scale)
    parts: list[tuple[NDArray[np.float64], ...]] = []
    for inputs, target, maps in held_out(subject):
        if flip:
            mirrored = flip_maps(subject.outputs(inputs.flip(3)).numpy(), skeleton)
            maps = (maps + torch.from_numpy(mirrored)) / 2
        assert not isinstance(target, Tensor)
        metric.update(maps, target)
        found = decode(maps.numpy(), STRIDE, task.scale)
        parts.append((*found, *(target[name].numpy() for name in ("joints", "labelled", "norm"))))
    joints, confidence, truth, labelled, norm = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Outcome(metric.score(), joints, confidence, truth, labelled.astype(bool), norm)


def evaluate_pose(subject: Subject, options: Arguments) -> None:
    """Print the joint table, and write the page of examples if asked to."""
    options.expect_unset("confusion", wanted="a network that classifies")
    outcome = find_joints(subject, flip=options.flip)
    if options.page is not None:
        from bitfactor.cli.pose_page import write_page  # imports matplotlib

        write_page(options.page, subject, outcome)
    if options.json:
        print_json({"people": len(outcome.joints), "flip": options.flip, **score_document(outcome.score)})
        return
    print_score(outcome.score)
    print(f"{subject.path}: {len(outcome.joints):,} people{', with their mirror images' * options.flip}")
