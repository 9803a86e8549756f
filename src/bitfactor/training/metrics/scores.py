"""Classes among the best; what heatmaps find: the percentage of correct keypoints, the height of peaks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from warnings import warn

import torch
from torch import Tensor
from torchmetrics import Metric

from bitfactor.common.checks import checked, expect
from bitfactor.common.errors import InputError
from bitfactor.format import Skeleton
from bitfactor.pose import LSP, MPII, decode
from bitfactor.pose.heatmap import MapScale, on_target_scale
from bitfactor.pose.pck import MEANS, Convention, Score, pck, pckh, score


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


_NEARLY_EMPTY = 0.05


class KeypointMetric(Metric, ABC):
    """Counts the keypoints that heatmaps find, as a `Convention` says.

    Update it with heatmaps (N, J, h, w) and the target of a `bitfactor.data.PoseData` batch: `keypoints`,
    `labelled` and `norm`. `compute` returns fractions by name; `score` returns all that was counted.

    Parameters
    ----------
    stride
        Pixels of the crop per cell of the heatmaps.
    scale
        What the heatmaps' values mean, see `bitfactor.pose.decode`.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    correct: Tensor
    labelled: Tensor

    @checked
    def __init__(self, skeleton: Skeleton, stride: int = 4, scale: MapScale = "linear") -> None:
        if stride < 1:
            raise InputError("stride", expected="1 or more", found=str(stride), fix="pass the network's")
        super().__init__()
        self.skeleton, self.stride, self.scale = skeleton, stride, scale
        keypoints, thresholds = len(skeleton.keypoints), len(self.convention.thresholds)
        zeros = torch.zeros(thresholds, keypoints, dtype=torch.int64)
        self.add_state("correct", zeros, dist_reduce_fx="sum")
        self.add_state("labelled", zeros[0].clone(), dist_reduce_fx="sum")

    @property
    @abstractmethod
    def convention(self) -> Convention:
        """What is counted."""

    def update(self, maps: Tensor, target: Mapping[str, Tensor]) -> None:
        """Count the keypoints of a batch."""
        _expect_maps(maps, target, len(self.skeleton.keypoints))
        predicted, _ = decode(_array(maps.float()), self.stride, self.scale)
        true, labelled, norm = (_array(target[name]) for name in ("keypoints", "labelled", "norm"))
        found = score(predicted, true, labelled, norm, self.convention)
        self.correct += torch.from_numpy(found.correct).to(self.correct.device)
        self.labelled += torch.from_numpy(found.labelled).to(self.labelled.device)

    def compute(self) -> dict[str, Tensor]:
        """Return the plain mean at the first threshold, and the other means and thresholds by name."""
        name = self.convention.name.lower()
        means = self.score().means()
        values = {name: means["plain"][0]}
        for i, threshold in enumerate(self.convention.thresholds):
            values |= {f"{name}_{mean}@{threshold}": means[mean][i] for mean in MEANS}
        return {key: torch.tensor(value, dtype=torch.float64) for key, value in values.items()}

    def score(self) -> Score:
        """Return what was counted so far."""
        return Score(self.convention, _array(self.correct), _array(self.labelled))


class PCK(KeypointMetric):
    """PCK at 0.2 and 0.1 of a length: of LSP's torso, from the right shoulder to the left hip.

    Example
    -------
    >>> metric = PCK()
    >>> metric.update(model(inputs), target)
    >>> metric.compute()["pck"]
    tensor(0.5213, dtype=torch.float64)
    """

    def __init__(self, skeleton: Skeleton = LSP, stride: int = 4, scale: MapScale = "linear") -> None:
        super().__init__(skeleton, stride, scale)

    @property
    def convention(self) -> Convention:
        return pck(self.skeleton)


def _expect_maps(maps: Tensor, target: Mapping[str, Tensor], keypoints: int) -> None:
    expect("maps", maps, Tensor)
    expect("target", target, Mapping[str, Any])
    missing = [name for name in ("keypoints", "labelled", "norm") if name not in target]
    wrong = maps.ndim != 4 or maps.shape[1] != keypoints
    if missing or wrong or not maps.isfinite().all():
        shape = f"({', '.join(map(str, maps.shape))})"
        raise InputError(
            "target" if missing else "maps",
            expected="keypoints, labelled and norm" if missing else f"finite heatmaps (N, {keypoints}, h, w)",
            found=f"no {missing[0]}" if missing else f"shape {shape}" if wrong else "NaN or infinity",
            fix="pass a batch's own" if missing else "pass the outputs of a network for these keypoints",
        )


def _array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()


class PCKh(KeypointMetric):
    """PCKh at 0.5 and 0.1 of the head's size, which is 0.6 times the diagonal of the head's box.

    Example
    -------
    >>> metric = PCKh()
    >>> metric.update(model(inputs), target)
    >>> metric.compute()["pckh"], metric.compute()["pckh_weighted@0.5"]
    (tensor(0.8676, dtype=torch.float64), tensor(0.8730, dtype=torch.float64))
    """

    def __init__(self, skeleton: Skeleton = MPII, stride: int = 4, scale: MapScale = "linear") -> None:
        super().__init__(skeleton, stride, scale)

    @property
    def convention(self) -> Convention:
        return pckh(self.skeleton)


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
