"""Human pose: a heatmap per keypoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from warnings import warn

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

from bitfactor.data import Target
from bitfactor.metrics import PCKh
from bitfactor.metrics.pck import KeypointMetric
from bitfactor.pose.heatmap import MapScale, on_target_scale

Criterion = Literal["mse", "bce", "softmax"]

_SCALES: dict[Criterion, MapScale] = {"mse": "linear", "bce": "logits", "softmax": "softmax"}

_NEARLY_EMPTY = 0.05


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
        Makes the metric of found keypoints, updated with heatmaps and a target, given their `scale`.

    Example
    -------
    >>> task = PoseEstimation(headline="pck", metric=PCK)
    >>> task.loss(model(inputs), target)
    """

    headline: str = "pckh"
    metric: Callable[..., KeypointMetric] = PCKh
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

    def metrics(self) -> MetricCollection:
        """Return fresh metrics, updated with (heatmaps, target)."""
        found, peak = self.metric(scale=self.scale), Peak(self.scale)
        metrics: dict[str, Metric | MetricCollection] = {self.headline: found, "peak": peak}
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


class Peak(Metric):
    """Mean height of the heatmaps' peaks, over the keypoints that have one; the target's are 1 high.

    Near 0, the network has learned to answer with empty maps, which cost little as nearly all of a target is
    zero. `compute` warns then.
    """

    higher_is_better = True
    total: Tensor
    keypoints: Tensor

    def __init__(self, scale: MapScale) -> None:
        super().__init__()
        self.scale: MapScale = scale
        for name in ("total", "keypoints"):
            self.add_state(name, default=torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, maps: Tensor, target: Mapping[str, Tensor]) -> None:
        """Add the peaks of heatmaps (N, J, h, w) where `weight` (N, J) is 1."""
        peaks = on_target_scale(maps.float().numpy(force=True), self.scale).max((2, 3))
        weight = target["weight"].to(self.total)
        self.total += (torch.from_numpy(peaks).to(weight) * weight).sum()
        self.keypoints += weight.sum()

    def compute(self) -> Tensor:
        """Return the mean height."""
        mean = self.total / self.keypoints.clamp_min(1)
        if mean < _NEARLY_EMPTY and self.keypoints > 0:
            warn(
                f"heatmaps are nearly empty: their peaks are {mean:.3f} high on average, the target's are 1; "
                "if that lasts for some epochs, use another criterion or learning rate",
                UserWarning,
                stacklevel=2,
            )
        return mean
