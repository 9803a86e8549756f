"""Classification: one of several classes per image."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from bitfactor.data import Target

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


@dataclass(frozen=True)
class Classification:
    """One of several classes per image: cross-entropy; top-1 and top-5 accuracy as fractions."""

    headline: str = "accuracy"

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        """Scores (N, classes), target (N,) or fractions of the classes (N, classes) -> mean cross-entropy."""
        assert isinstance(target, Tensor)
        return F.cross_entropy(outputs, target)

    def metrics(self) -> "MetricCollection":
        """Return fresh metrics, updated with (scores, target)."""
        from torchmetrics import MetricCollection  # here, for a quick import of the rest

        from bitfactor.metrics import TopAccuracy

        return MetricCollection({"accuracy": TopAccuracy(1), "top5": TopAccuracy(5)}, compute_groups=False)

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's scores stand for: its probabilities."""
        return outputs.softmax(1)
