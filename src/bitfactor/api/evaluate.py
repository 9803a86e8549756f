"""`bitfactor.evaluate`: how good a network is, on images that it was not trained with."""

import os
from pathlib import Path

from bitfactor.api.classes import ClassEvaluation, classify
from bitfactor.api.evaluation import Evaluation
from bitfactor.api.images import images_of
from bitfactor.api.network import Network, RunDirectory, network_at
from bitfactor.checks import checked
from bitfactor.data.split import expect_some
from bitfactor.errors import InputError, imported
from bitfactor.runtime import Precision


@checked
def evaluate(
    subject: str | os.PathLike[str] | RunDirectory,
    *,
    data: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    best: bool = False,
    flip: bool = False,
    confusion: str | os.PathLike[str] | None = None,
    page: str | os.PathLike[str] | None = None,
    device: str = "auto",
    precision: Precision = "highest",
) -> Evaluation:
    """Evaluate a run in torch, or an exported file without: which classes are right, which keypoints are
    found.

    Parameters
    ----------
    subject
        Directory of a run, what `train` returned, a file, or the name of a network of the zoo.
    data
        Directory of the images: with `val/` (or `valid`, `validation`, `test`), or of a test set of class
        directories alone, whose names are the network's classes; CIFAR's files; the data sets of poses. A run
        remembers the one that it was trained with.
    limit
        At most so many images: equally many of each class; of instances the first.
    best
        Of a run: take the checkpoint of its best epoch.
    flip
        Poses: average the heatmaps with those of the mirrored image.
    confusion
        Classes: also draw the confusion matrix, a PNG or SVG file.
    page
        Poses: also write a page with the instances found best and worst, an HTML file.
    device
        Of a run: where torch computes.
    precision
        Of a file: that of its real-valued layers, see `bitfactor.runtime.Session`.

    Returns
    -------
    A `ClassEvaluation` (`accuracy`, `top5`, `by_class()`) or a `PoseEvaluation` (`score`). Both say which
    images were evaluated and how many, and print as the command does.

    Raises
    ------
    InputError
        If there is no network or no image, the images are of classes that the network does not know, or an
        option is not for it.

    Example
    -------
    >>> print(evaluate("flowers.safetensors", data="flowers/val").accuracy)
    0.912
    """
    if limit is not None:
        expect_some("--limit", limit)
    network = network_at(subject, best=best, device=device, precision=precision)
    if network.finds_keypoints:
        _expect_unset(network, "a network that classifies", confusion=confusion)
        poses = imported("bitfactor.api.poses", f"evaluating the poses of {network.path}", "train")
        found: Evaluation = poses.evaluate_poses(network, data, limit, flip, page and Path(page))
        return found
    _expect_unset(network, "a network that finds keypoints", flip=flip, page=page)
    return _evaluate_classes(network, data, limit, confusion)


def _evaluate_classes(
    network: Network,
    data: str | os.PathLike[str] | None,
    limit: int | None,
    confusion: str | os.PathLike[str] | None,
) -> ClassEvaluation:
    drawing = imported("bitfactor.report.figures", "--confusion", "train") if confusion else None
    images = images_of(network, data, limit)
    found = classify(network, images)
    if drawing is not None:
        drawing.draw_confusion(found.confusion, found.labels, Path(confusion or ""))
    return found


def _expect_unset(network: Network, wanted: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise InputError(
                f"--{name}",
                expected=wanted,
                found=f"one for another task, {network.path}",
                fix="leave it out",
            )
