"""What a network does on the test set."""

from collections.abc import Iterable

import torch
from lightning_fabric import Fabric
from torch import nn

from bitfactor.data import Batch
from bitfactor.training.task import Task

EVALUATION_BATCH = 256


@torch.no_grad()
def evaluate(fabric: Fabric, model: nn.Module, task: Task, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the task's metrics of `model`, in evaluation mode and float32, over `batches`.

    Each process gives its part of the batches and gets the metrics of all.
    """
    model.eval()
    metrics = task.metrics().to(fabric.device)
    for batch in batches:
        inputs, target = fabric.to_device(batch)
        metrics.update(model(inputs), target)
    return {name: float(value) for name, value in metrics.compute().items()}
