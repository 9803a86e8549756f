"""What is learned: a loss, and how its outcome is measured."""

from typing import Protocol, runtime_checkable

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


@runtime_checkable
class Teachable(Protocol):
    """A task that can be learned from another network's outputs."""

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's outputs stand for."""
        ...
