"""How well a network classifies: in all, and class by class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitfactor.cli.evaluation import Arguments
from bitfactor.cli.output import print_json, print_table
from bitfactor.cli.subject import Subject, held_out

_TOP = 5
_LISTED = 20  # classes; of more, those with most mistakes


@dataclass(frozen=True)
class Outcome:
    """The classes `expected` and `found` of each picture, (N,), and the share with it among the best five."""

    labels: tuple[str, ...]
    expected: NDArray[np.int64]
    found: NDArray[np.int64]
    top5: float

    @property
    def correct(self) -> int:
        """How many pictures are classified right."""
        return int((self.expected == self.found).sum())

    @property
    def accuracy(self) -> float:
        """Their share."""
        return self.correct / len(self.expected)

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Number of pictures by (class expected, class found), (C, C)."""
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
            "top5": self.top5,
            "correct": self.correct,
            "total": len(self.expected),
            "classes": self.by_class(),
            "predictions": self.found.tolist(),
        }


def classify(subject: Subject) -> Outcome:
    """Classify the held-out data."""
    expected, found, among = [], [], []
    for _, target, scores in held_out(subject):
        assert isinstance(target, Tensor)
        best = scores.topk(min(_TOP, scores.shape[1]), 1).indices
        expected.append(target.cpu())
        found.append(scores.argmax(1))
        among.append((best == expected[-1][:, None]).any(1))
    top5 = torch.cat(among).float().mean().item()
    return Outcome(subject.data.labels, torch.cat(expected).numpy(), torch.cat(found).numpy(), top5)


def evaluate_classification(subject: Subject, options: Arguments) -> None:
    """Print accuracy, in all and by class, and draw the confusion matrix if asked to."""
    options.expect_unset("page", "flip", wanted="a network that finds joints")
    outcome = classify(subject)
    if options.confusion:
        from bitfactor.report.confusion import draw_confusion  # imports matplotlib

        draw_confusion(outcome.confusion, outcome.labels, options.confusion)
    if options.json:
        print_json(outcome.to_dict())
        return
    print(
        f"{subject.path}: {outcome.accuracy:.2%} ({outcome.correct} of {len(outcome.expected)} right), "
        f"top-5 {outcome.top5:.2%}"
    )
    classes = [entry for entry in outcome.by_class() if entry["total"]]
    if len(classes) > _LISTED:
        classes = sorted(classes, key=lambda entry: entry["accuracy"])[:_LISTED]
        print(f"the {_LISTED} classes with most mistakes:")
    rows = [(e["label"], str(e["total"]), str(e["correct"]), f"{e['accuracy']:.1%}") for e in classes]
    print_table(("class", "pictures", "right", "accuracy"), rows)
