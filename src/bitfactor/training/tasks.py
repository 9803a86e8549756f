"""What is learned: the loss, and how its outcome is measured."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy


@dataclass(frozen=True)
class Classification:
    """One of `classes` per picture: cross-entropy, and top-1 accuracy as a fraction."""

    classes: int

    def loss(self, scores: Tensor, target: Tensor) -> Tensor:
        """Scores (N, classes), target (N,) -> mean cross-entropy."""
        return F.cross_entropy(scores, target)

    def metrics(self) -> MetricCollection:
        """Return fresh metrics, updated with (scores, target)."""
        return MetricCollection({"accuracy": MulticlassAccuracy(self.classes, average="micro")})
