"""Share of images whose class is among the best."""

import torch
from torch import Tensor
from torchmetrics import Metric


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
