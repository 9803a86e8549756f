"""Classification: one of several classes per image."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

from bitfactor.data import Target


@dataclass(frozen=True)
class Classification:
    """One of several classes per image: cross-entropy; top-1 and top-5 accuracy as fractions."""

    headline: str = "accuracy"

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        """Scores (N, classes), target (N,) or fractions of the classes (N, classes) -> mean cross-entropy."""
        assert isinstance(target, Tensor)
        return F.cross_entropy(outputs, target)

    def metrics(self) -> MetricCollection:
        """Return fresh metrics, updated with (scores, target)."""
        return MetricCollection({"accuracy": TopAccuracy(1), "top5": TopAccuracy(5)}, compute_groups=False)

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's scores stand for: its probabilities."""
        return outputs.softmax(1)


class TopAccuracy(Metric):
    """Share of the images whose class is among the `top` highest scores.

    Example
    -------
    >>> accuracy = TopAccuracy(2)
    >>> accuracy.update(torch.tensor([[0.1, 0.9, 0.2]]), torch.tensor([2]))
    >>> accuracy.compute()
    tensor(1.)
    """

    correct: Tensor
    total: Tensor

    def __init__(self, top: int) -> None:
        super().__init__()
        self.top = top
        for name in ("correct", "total"):
            self.add_state(name, default=torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, scores: Tensor, target: Tensor) -> None:
        """Count (N, classes) scores against (N,) classes."""
        best = scores.topk(min(self.top, scores.shape[1]), 1).indices
        self.correct += (best == target[:, None]).sum()
        self.total += len(target)

    def compute(self) -> Tensor:
        """Return the fraction."""
        return self.correct / self.total
