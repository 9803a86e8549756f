"""Classification: one of several classes per picture."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from bitfactor.data import Target


@dataclass(frozen=True)
class Classification:
    """One of `classes` per picture: cross-entropy, and top-1 accuracy as a fraction."""

    classes: int
    headline: str = "accuracy"

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        """Scores (N, classes), target (N,) -> mean cross-entropy."""
        assert isinstance(target, Tensor)
        return F.cross_entropy(outputs, target)

    def metrics(self) -> MetricCollection:
        """Return fresh metrics, updated with (scores, target)."""
        return MetricCollection({"accuracy": MulticlassAccuracy(self.classes, average="micro")})
