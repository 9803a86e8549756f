"""How well a network classifies: in all, and class by class. Needs no torch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.api.evaluation import Evaluation
from bitfactor.api.network import Network
from bitfactor.data.evaluation_set import EvaluationSet
from bitfactor.errors import InputError
from bitfactor.result import text_table

_TOP = 5
_LISTED = 20  # classes; of more, those with most mistakes


@dataclass(frozen=True)
class ClassEvaluation(Evaluation):
    """The classes `expected` and `found` of each image, (N,).

    `top5` is the fraction of images whose class is among the best five; None of no more than five classes.
    """

    labels: tuple[str, ...]
    expected: NDArray[np.int64]
    found: NDArray[np.int64]
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
        return "\n".join([*lines, text_table(head, rows, right=frozenset({1, 2, 3}))])


def classify(network: Network, images: EvaluationSet) -> ClassEvaluation:
    """Classify images of known classes.

    Raises
    ------
    InputError
        If the network's outputs are no scores, or no image can be read.
    """
    expected, found, among = [], [], []
    for inputs, classes in images.batches():
        scores = _scores(network, inputs)
        expected.append(classes)
        found.append(scores.argmax(1))
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
