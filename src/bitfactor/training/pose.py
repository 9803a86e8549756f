"""Human pose: a heatmap per keypoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from bitfactor.data import Target
from bitfactor.pose.heatmap import MapScale, on_target_scale

if TYPE_CHECKING:
    from torchmetrics import Metric, MetricCollection

    from bitfactor.metrics import KeypointMetric

Criterion = Literal["mse", "bce", "softmax"]

_SCALES: dict[Criterion, MapScale] = {"mse": "linear", "bce": "logits", "softmax": "softmax"}


@dataclass(frozen=True)
class PoseEstimation:
    """Keypoints found through heatmaps, learned from Gaussians.

    The loss of a keypoint's map is summed over its cells, averaged over the keypoints whose target shows one,
    and summed over the hourglasses (intermediate supervision). With z a map and t its target, in (0, 1):

    - `mse`: sum (z - t)^2. A map of zeros costs no more than pi, and is a trap.
    - `bce`: sum -t log sigmoid(z) - (1 - t) log(1 - sigmoid(z)); in the same trap, less deep.
    - `softmax`: - sum t / |t| log softmax(z), over the cells: cells compete, so that there is no empty map.
      It learns in the fewest steps.

    Parameters
    ----------
    headline
        The metric by which networks are compared, one of those of `metric`.
    metric
        Makes the metric of found keypoints, updated with heatmaps and a target, given their `scale`. `PCKh`
        if left out.

    Example
    -------
    >>> task = PoseEstimation(headline="pck", metric=PCK)
    >>> task.loss(model(inputs), target)
    """

    headline: str = "pckh"
    metric: "Callable[..., KeypointMetric] | None" = None
    criterion: Criterion = "bce"

    @property
    def provenance(self) -> dict[str, str]:
        """What an exported file says of its heatmaps, see `bitfactor.pose.finder`."""
        return {"heatmaps": self.scale}

    @property
    def scale(self) -> MapScale:
        """What the values of its heatmaps mean."""
        return _SCALES[self.criterion]

    def loss(self, outputs: Tensor | tuple[Tensor, ...], target: Target) -> Tensor:
        """Heatmaps (N, J, h, w), those of each hourglass in training, and a target of them -> the loss."""
        assert isinstance(target, Mapping)
        stacks = outputs if isinstance(outputs, tuple) else (outputs,)
        weight = target["weight"]
        losses = [_LOSSES[self.criterion](maps.float(), target["heatmaps"]) for maps in stacks]
        return (torch.stack(losses).sum(0) * weight).sum() / weight.sum().clamp_min(1)

    def found(self) -> "KeypointMetric":
        """Return a fresh metric of found keypoints."""
        from bitfactor.metrics import PCKh  # here, for a quick import of the rest

        return (self.metric or PCKh)(scale=self.scale)

    def metrics(self) -> "MetricCollection":
        """Return fresh metrics, updated with (heatmaps, target)."""
        from torchmetrics import MetricCollection  # here, for a quick import of the rest

        from bitfactor.metrics import Peak

        metrics: dict[str, Metric | MetricCollection] = {
            self.headline: self.found(),
            "peak": Peak(self.scale),
        }
        return MetricCollection(metrics, compute_groups=False)

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's heatmaps stand for."""
        assert isinstance(target, Mapping)
        maps = on_target_scale(outputs.numpy(force=True), self.scale)
        return {**target, "heatmaps": torch.from_numpy(maps).to(outputs.device)}


def _squared(maps: Tensor, heatmaps: Tensor) -> Tensor:
    return (maps - heatmaps).square().sum((2, 3))


def _logistic(maps: Tensor, heatmaps: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(maps, heatmaps, reduction="none").sum((2, 3))


def _softmax(maps: Tensor, heatmaps: Tensor) -> Tensor:
    fractions = F.normalize(heatmaps.flatten(2), p=1, dim=2)
    return -(fractions * maps.flatten(2).log_softmax(2)).sum(2)


_LOSSES: dict[Criterion, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": _squared,
    "bce": _logistic,
    "softmax": _softmax,
}
