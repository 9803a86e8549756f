"""What is learned: a loss, and how its outcome is evaluated."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bitfactor.data import Batch, DataSet, Target
from bitfactor.decompositions import once
from bitfactor.format import InputSpec, Skeleton

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torchmetrics import MetricCollection


@dataclass(frozen=True)
class Interface:
    """How images become inputs, and the names of classes or keypoints."""

    input_spec: InputSpec
    labels: tuple[str, ...] = ()
    skeleton: Skeleton | None = None

    @classmethod
    def of(cls, data: DataSet) -> "Interface":
        """Return what a data set says; one of poses has an attribute `skeleton`."""
        return cls(data.input_spec, data.labels, getattr(data, "skeleton", None))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Interface":
        """Return what `to_dict` gave, also after it went through JSON."""
        skeleton = values["skeleton"]
        return cls(
            InputSpec(**_frozen(values["input_spec"])),
            tuple(values["labels"]),
            Skeleton(**_frozen(skeleton)) if skeleton else None,
        )


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in values.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


class Task(Protocol):
    """A kind of problem. `headline` is the metric by which networks are compared; more of it is better."""

    @property
    def headline(self) -> str:
        """Name of one of `metrics`."""
        ...

    def loss(self, outputs: Tensor, target: Target) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def metrics(self) -> "MetricCollection":
        """Return fresh metrics, updated with (outputs, target); each is a fraction."""
        ...


@runtime_checkable
class Teachable(Protocol):
    """A task that can be learned from another network's outputs."""

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's outputs stand for."""
        ...


EVALUATION_BATCH = 256


@torch.no_grad()
def evaluate(fabric: "Fabric", model: nn.Module, task: Task, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the task's metrics of `model`, in evaluation mode and float32, over `batches`.

    Each process gives its part of the batches and gets the metrics of all.
    """
    model.eval()
    metrics = task.metrics().to(fabric.device)
    with once(model):
        for batch in batches:
            inputs, target = fabric.to_device(batch)
            metrics.update(model(inputs), target)
    return {name: float(value) for name, value in metrics.compute().items()}
