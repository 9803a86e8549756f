"""What is learned: a loss, and how its outcome is measured."""

from typing import Protocol

from torch import Tensor
from torchmetrics import MetricCollection

from bitfactor.data import Target


class Task(Protocol):
    """A kind of problem. `headline` is the metric by which networks are compared; more of it is better."""

    @property
    def headline(self) -> str:
        """Name of one of `metrics`."""
        ...

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def metrics(self) -> MetricCollection:
        """Return fresh metrics, updated with (outputs, target); each is a fraction."""
        ...
