"""`bitfactor.evaluate`: how good a network is, on images that it was not trained with.

What every evaluation says; and of a network that classifies, on which images, and how well. Also how good
published predictions of keypoints are. Needs no torch.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.api.network import Network, RunDirectory, network_at
from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError, imported
from bitfactor.common.files import expect_output, replacing
from bitfactor.common.result import Result, text_table
from bitfactor.data.readers.check import OF_RECIPES, images_in
from bitfactor.data.readers.evaluation_set import EvaluationSet, Wanted, of_data_set
from bitfactor.data.readers.files import expect_some
from bitfactor.data.readers.identity import identity_of
from bitfactor.data.readers.mpii import read_predictions, read_truth
from bitfactor.pose.pck import Score, pckh, score, score_document, score_table
from bitfactor.runtime import Precision

if TYPE_CHECKING:
    from bitfactor.training import Recipe


@dataclass(frozen=True)
class Evaluation(Result):
    """`images` says which images the network at `path` was evaluated on and how many, `notes` what else is to
    be known of them.
    """

    path: Path
    images: str
    notes: tuple[str, ...]

    def noted(self) -> list[str]:
        """Return the notes as lines."""
        return [f"note: {note}" for note in self.notes]


_TOP = 5
_LISTED = 20  # classes; of more, those with most mistakes


@dataclass(frozen=True)
class ClassEvaluation(Evaluation):
    """The classes `expected` and `found` of each image, (N,), and the `confidence` in that one: its softmax.

    `top5` is the fraction of images whose class is among the best five; None of no more than five classes.
    """

    labels: tuple[str, ...]
    expected: NDArray[np.int64]
    found: NDArray[np.int64]
    confidence: NDArray[np.float64]
    top5: float | None

    @property
    def correct(self) -> int:
        """How many images are classified right."""
        return int((self.expected == self.found).sum())

    @property
    def accuracy(self) -> float:
        """The fraction of them."""
        return self.correct / len(self.expected)

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Number of images by (class expected, class found), (C, C)."""
        classes = len(self.labels)
        cells = np.bincount(self.expected * classes + self.found, minlength=classes**2)
        return cells.reshape(classes, classes)

    def by_class(self) -> list[dict[str, Any]]:
        """Return label, total, correct and accuracy of each class."""
        confusion = self.confusion
        totals, correct = confusion.sum(1).tolist(), confusion.diagonal().tolist()
        return [
            {"label": label, "total": total, "correct": right, "accuracy": right / total if total else None}
            for label, total, right in zip(self.labels, totals, correct, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return {
            "accuracy": self.accuracy,
            **({} if self.top5 is None else {"top5": self.top5}),
            "correct": self.correct,
            "total": len(self.expected),
            "images": self.images,
            "notes": list(self.notes),
            "classes": self.by_class(),
            "predictions": self.found.tolist(),
        }

    def __str__(self) -> str:
        top5 = "" if self.top5 is None else f", top-5 {self.top5:.2%}"
        lines = [
            f"{self.path}: {self.accuracy:.2%} of {self.images} "
            f"({self.correct} of {len(self.expected)} right){top5}",
            *self.noted(),
        ]
        classes = [entry for entry in self.by_class() if entry["total"]]
        if len(classes) > _LISTED:
            classes = sorted(classes, key=lambda entry: entry["accuracy"])[:_LISTED]
            lines.append(f"the {_LISTED} classes with most mistakes:")
        rows = [(e["label"], str(e["total"]), str(e["correct"]), f"{e['accuracy']:.1%}") for e in classes]
        head = ("class", "images", "right", "accuracy")
        return "\n".join([*lines, text_table(head, rows, right={1, 2, 3})])


def _confidence(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the probability of each sample's class, of probabilities as of scores (N, classes)."""
    if scores.min(initial=0) >= 0 and np.allclose(scores.sum(1), 1, atol=1e-3):
        return np.asarray(scores.max(1), float)
    return np.asarray(1 / np.exp(scores - scores.max(1, keepdims=True), dtype=float).sum(1))


def classify(network: Network, images: EvaluationSet) -> ClassEvaluation:
    """Classify images of known classes."""
    expected, found, confidence, among = [], [], [], []
    for inputs, classes in images.batches():
        scores = _scores(network, inputs)
        if not (classes.ndim == 1 and np.issubdtype(classes.dtype, np.integer)):
            raise InputError(
                network.path,
                expected="a network that classifies or finds keypoints",
                found=f"targets of shape {classes.shape}",
                fix="the log of its run has the metrics of its own task",
            )
        expected.append(classes)
        found.append(scores.argmax(1))
        confidence.append(_confidence(scores))
        among.append((np.argsort(-scores, 1, kind="stable")[:, :_TOP] == classes[:, None]).any(1))
    if not expected:
        raise InputError(images.name, expected="images that can be read", found="none", fix="name others")
    total = sum(map(len, expected))
    left_out = 0 if images.total is None or images.limit else images.total - total
    if left_out:
        images = images.with_notes(f"{left_out} corrupt left out")
    return ClassEvaluation(
        network.path,
        images.described(total),
        images.notes,
        images.labels,
        np.concatenate(expected),
        np.concatenate(found),
        np.concatenate(confidence),
        float(np.concatenate(among).mean()) if len(images.labels) > _TOP else None,
    )


def _scores(network: Network, inputs: NDArray[np.float32]) -> NDArray[Any]:
    scores = np.asarray(network.outputs(inputs))
    expected = (len(inputs), len(network.labels)) if network.labels else (len(inputs), "classes")
    if scores.ndim != 2 or (network.labels and scores.shape != expected):
        raise InputError(
            network.path,
            expected=f"scores of shape {expected}",
            found=f"shape {scores.shape}",
            fix="evaluate a network that classifies",
        )
    if not np.isfinite(scores).all():
        raise InputError(
            network.path,
            expected="scores that are numbers",
            found="NaN or infinity",
            fix="train it again with a lower learning rate, or take an earlier checkpoint",
        )
    return scores


def images_of(
    network: Network, data: str | os.PathLike[str] | None = None, limit: int | None = None
) -> EvaluationSet:
    """Return the images to evaluate on: of a directory, of the recipe, or those that a network remembers."""
    directory = network.directory(data)
    known = OF_RECIPES.get(network.recipe)
    recipe = None if known else _with_own_data(network)
    if recipe is not None:
        data_set = recipe.data(directory)
        other = other_images(network, identity_of(data_set, directory)["fingerprint"])
        return of_data_set(data_set, network.labels, limit).with_notes(*other)
    return (known or images_in)(directory, _wanted(network, limit))


def _wanted(network: Network, limit: int | None) -> Wanted:
    if network.input_spec is None or not network.labels:
        missing = "no input specification" if network.input_spec is None else "no names of classes"
        raise InputError(
            network.path,
            expected="a file that says how images are prepared and names its classes",
            found=missing,
            fix="pass input_spec and labels to bitfactor.export",
        )
    return Wanted(
        str(network.path), network.labels, network.input_spec, network.holdout, network.trained_with, limit
    )


def _with_own_data(network: Network) -> "Recipe | None":
    """Return the network's recipe where its data are not images in class directories or CIFAR's."""
    if network.recipe is None:
        return None
    try:
        recipe = network.full_recipe()
    except InputError:
        if network.path.is_dir():
            raise
        return None  # a file whose recipe is not known here can be evaluated on class directories
    return None if getattr(recipe.data, "classes_in_files", False) else recipe


def other_images(network: Network, fingerprint: str) -> tuple[str, ...]:
    """Return a note where data are not those that a network was trained with."""
    known = (network.trained_with or {}).get("fingerprint", fingerprint)
    return () if known == fingerprint else ("other images than it was trained with",)


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
    overwrite: bool = False,
) -> Evaluation:
    """Evaluate a run in torch, or an exported file in the runtime, on images that it was not trained with.

    Parameters
    ----------
    subject
        Directory of a run, exported file, or a network of `bitfactor zoo`; in Python also what `train` gave.
    data
        Directory of the images: with val/ (or valid, validation, test), or a test set alone, as directories
        named as the network's classes. Or CIFAR's files, or the data sets of poses. A run remembers the one
        that it was trained with.
    limit
        Evaluate at most so many images: equally many of each class, of instances the first.
    best
        Of a run: take the checkpoint of its best epoch in place of the last.
    flip
        Poses: average the heatmaps with those of the mirrored image.
    confusion
        Classification: also draw the confusion matrix, a PNG or SVG file.
    page
        Poses: also write a page with the instances found best and worst, an HTML file.
    device
        Of a run: where torch computes, as auto, cpu, cuda or cuda:1.
    precision
        Of a file: that of its full-precision layers, see `Session`.
    overwrite
        Replace a drawing or page that bitfactor did not write.

    Returns
    -------
    A `ClassEvaluation` (`accuracy`, `top5`, `by_class()`) or a `PoseEvaluation` (`score`). Both say which
    images were evaluated and how many, and print as the command does.

    Raises
    ------
    InputError
        If there is no network or no image, the images are of classes that the network lacks, or an option is
        not for it.

    Example
    -------
    >>> print(evaluate("flowers.safetensors", data="flowers/val").accuracy)
    0.912
    """
    if limit is not None:
        expect_some("--limit", limit)
    if confusion is not None:
        expect_output(confusion, [".png", ".svg"], overwrite=overwrite, flag="--confusion")
    if page is not None:
        expect_output(page, [".html"], overwrite=overwrite, flag="--page")
    network = network_at(subject, best=best, device=device, precision=precision)
    if network.finds_keypoints:
        _expect_unset(network, "a network that classifies", confusion=confusion)
        poses = imported("bitfactor.api.poses", f"evaluating the poses of {network.path}", "train")
        found: Evaluation = poses.evaluate_poses(network, data, limit, flip, page and Path(page))
        return found
    _expect_unset(network, "a network that finds keypoints", flip=flip, page=page)
    if confusion is None:
        return classify(network, images_of(network, data, limit))
    imported("matplotlib", "--confusion", "cli")
    classes = classify(network, images_of(network, data, limit))
    with replacing(confusion) as temporary:
        kind = Path(confusion).suffix.lower().lstrip(".")
        drawn = confusion_drawing(classes.confusion, classes.labels)
        drawn.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return classes


def _expect_unset(network: Network, wanted: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise InputError(
                f"--{name}",
                expected=wanted,
                found=f"one for another task, {network.path}",
                fix="leave it out",
            )


_NAMED = 40  # classes whose names can be read
_WRITTEN = 20  # classes whose counts can be read


def confusion_drawing(counts: NDArray[np.int64], labels: Sequence[str]) -> Any:
    """Return counts (C, C) of images by (class expected, class found) as a figure of matplotlib.

    A row's colours are fractions of it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    fractions = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = 2.0 + 0.42 * min(len(labels), _WRITTEN)
    style: Any = {"font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "bitfactor"}
    with matplotlib.rc_context(style | {"text.parse_math": False}):  # a class may be called $1 to $2
        figure = Figure(figsize=(side + 0.8, side), layout="constrained", dpi=150)
        ax = figure.subplots()
        image = ax.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
        bar = figure.colorbar(image, ax=ax, shrink=0.8, label="fraction of the class")
        bar.outline.set_visible(False)
        ax.set_xlabel("class found")
        ax.set_ylabel("class expected")
        _name(ax, labels)
        if len(labels) <= _WRITTEN:
            _write(ax, counts, fractions)
        return figure


def _name(ax: Any, labels: Sequence[str]) -> None:
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if len(labels) > _NAMED:
        return
    ax.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 2 else 0)
    ax.set_yticks(range(len(labels)), labels)


def _write(ax: Any, counts: NDArray[np.int64], fractions: NDArray[np.float64]) -> None:
    for row, column in np.argwhere(counts):
        colour = "white" if fractions[row, column] > 0.5 else "#374151"
        ax.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=colour)


@dataclass(frozen=True)
class PublishedScore(Result):
    """PCKh of a file of predictions, of so many instances."""

    predictions: Path
    truth: Path
    instances: int
    score: Score

    def to_dict(self) -> dict[str, Any]:
        described = {"predictions": str(self.predictions), "truth": str(self.truth)}
        return {**described, "instances": self.instances, **score_document(self.score)}

    def __str__(self) -> str:
        return (
            f"{score_table(self.score)}\n"
            f"{self.instances:,} instances; a joint counts as found within 0.5 (0.1) of the head's size"
        )


def score_files(predictions: Path, *, truth: Path) -> PublishedScore:
    """Score predicted joints of MPII's validation set: PCKh at 0.5 and 0.1, in three means.

    Parameters
    ----------
    predictions
        Predictions as published: a .mat, .h5 or .json file with joints (N, 16, 2) or (2, 16, N). They are
        pixels that count from 1, as MPII's do.
    truth
        detections_our_format.mat, as published with the split of Tompson et al. (HRNet: gt_valid.mat).
    """
    true, predicted = read_truth(truth), read_predictions(predictions)
    found = score(predicted, true.keypoints, true.labelled, true.norm, pckh(), predictions)
    return PublishedScore(predictions, truth, len(predicted), found)
