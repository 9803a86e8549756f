"""What is learned: a loss, and how its outcome is evaluated.

Classification: one of several classes per image.

Human pose: a heatmap per keypoint.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.common.errors import InputError
from bitfactor.data import Batch, DataSet, Target
from bitfactor.decompositions import once
from bitfactor.format import InputSpec, Skeleton
from bitfactor.pose.heatmap import MapScale, on_target_scale

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torchmetrics import Metric, MetricCollection

    from bitfactor.training.metrics import KeypointMetric


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


class Teacher(nn.Module):
    """A network to learn from, with what is known of it.

    Parameters
    ----------
    labels
        Its classes; empty if not known.
    mean, std
        How its inputs were normalised; empty if as those that it gets here.
    side
        Height and width of its inputs, to which images are resized; 0 if it takes any.
    """

    def __init__(
        self,
        network: nn.Module,
        labels: tuple[str, ...] = (),
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
        side: int = 0,
    ) -> None:
        super().__init__()
        self.network, self.labels, self.mean, self.std, self.side = network, labels, mean, std, side
        self.renormalised: tuple[Tensor, Tensor] | None = None
        self.head: nn.Module = nn.Identity()
        self.note = ""  # what is to be said of it before a training

    def fit(self, interface: Interface) -> None:
        """Take inputs normalised as those of `interface`; InputError where its classes are others."""
        if self.labels and interface.labels and self.labels != interface.labels:
            theirs = [name for name in self.labels if name not in interface.labels] or self.labels
            raise InputError(
                "--teacher",
                expected=f"the {len(interface.labels)} classes of the data",
                found=f"a network of {len(self.labels)} others, such as {theirs[0]}",
                fix="choose one of the same classes, or one of ImageNet",
            )
        spec = interface.input_spec
        if self.mean and (self.mean, self.std) != (spec.mean, spec.std):
            mean, std, other, deviation = (
                torch.tensor(values).view(-1, 1, 1) for values in (spec.mean, spec.std, self.mean, self.std)
            )
            self.renormalised = std / deviation, (mean - other) / deviation

    def forward(self, x: Tensor) -> Tensor:
        if self.renormalised is not None:
            scale, shift = self.renormalised
            x = x * scale.to(x) + shift.to(x)
        if self.side and x.shape[2:] != (self.side, self.side):
            x = F.interpolate(x, (self.side, self.side), mode="bilinear", antialias=True)
        return self.head(self.network(x))  # type: ignore[no-any-return]

    @torch.no_grad()
    def learn_head(self, batches: Iterable[Batch], classes: int, images: int) -> None:
        """Give a network whose classes are not known a linear head of its features, for those of the data.

        Features are what its last linear layer gets, or its outputs where it has none. The head is a logistic
        regression on about so many training images, and a quarter of them tells how good it is. Without
        images its weights are zero, as a trial needs no more.

        Raises
        ------
        InputError
            If the head is right less often than one that says the same class each time.
        """
        batches = iter(batches)
        inputs, target = next(batches)
        outputs = self(inputs).shape[1]
        self.network = _without_head(self.network, outputs)
        features, targets = [self(inputs).float()], [target]
        while sum(map(len, targets)) < images and (batch := next(batches, None)) is not None:
            features.append(self(batch[0]).float())
            targets.append(batch[1])
        x, y = torch.cat(features), torch.cat([one for one in targets if isinstance(one, Tensor)])
        self.head = nn.Linear(x.shape[1], classes, device=x.device).requires_grad_(False)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if not images:
            return
        fitted = len(x) * 3 // 4
        _fit_linear(self.head, x[:fitted], y[:fitted])
        found = float((self.head(x[fitted:]).argmax(1) == y[fitted:]).float().mean())
        chance = float(y[fitted:].bincount().max() / len(y[fitted:]))
        if found <= chance:
            raise InputError(
                "--teacher",
                expected=f"a network of the {classes} classes, or one whose features tell them apart",
                found=f"one of {outputs} outputs, whose features are right on {found:.0%} of images, "
                f"where the most frequent class alone is on {chance:.0%}",
                fix="choose another network",
            )
        self.note = (
            f"the teacher has {outputs} outputs: a linear head of its features for the {classes} classes, "
            f"fitted on {fitted:,} training images, is right on {found:.0%} of {len(x) - fitted:,} others"
        )


def _without_head(network: nn.Module, outputs: int) -> nn.Module:
    """Return a network without its last linear layer of so many outputs, if it has one."""
    layers = [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == outputs
    ]
    if layers == [""]:
        return nn.Identity()
    if layers:
        network.set_submodule(layers[-1], nn.Identity())
    return network


_RIDGE = 1e-2  # of standardised features: the least loss of 1e-4 to 1e-2 on photos at 96 and 128 pixels


def _fit_linear(layer: nn.Linear, x: Tensor, target: Tensor) -> None:
    """Make of a layer the logistic regression of `target` (N,) on features (N, F)."""
    mean, deviation = x.mean(0), x.std(0).clamp_min(1e-6)
    weight = torch.zeros_like(layer.weight, requires_grad=True)
    bias = torch.zeros_like(layer.bias, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")
    standard = (x - mean) / deviation

    @torch.enable_grad()
    def loss() -> Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(F.linear(standard, weight, bias), target) + _RIDGE * weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    with torch.autocast(x.device.type, enabled=False):
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    layer.weight.copy_(weight / deviation)
    layer.bias.copy_(bias - layer.weight @ mean)


EVALUATION_BATCH = 256


@torch.no_grad()
def evaluate(fabric: "Fabric", model: nn.Module, task: Task, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the task's metrics and loss of `model`, in evaluation mode and float32, over `batches`.

    Each process gives its part of the batches and gets the metrics of all.
    """
    model.eval()
    from torchmetrics import MeanMetric  # here, for a quick import of the rest

    metrics, loss = task.metrics().to(fabric.device), MeanMetric().to(fabric.device)
    with once(model):
        for batch in batches:
            inputs, target = fabric.to_device(batch)
            outputs = model(inputs)
            metrics.update(outputs, target)
            loss.update(task.loss(outputs, target), len(inputs))
    return {name: float(value) for name, value in {**metrics.compute(), "test_loss": loss.compute()}.items()}


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

        from bitfactor.training.metrics import TopAccuracy

        return MetricCollection({"accuracy": TopAccuracy(1), "top5": TopAccuracy(5)}, compute_groups=False)

    def taught(self, outputs: Tensor, target: Target) -> Target:
        """Return the target that a teacher's scores stand for: its probabilities."""
        return outputs.softmax(1)


Criterion = Literal["mse", "bce", "softmax"]

_SCALES: dict[Criterion, MapScale] = {"mse": "linear", "bce": "logits", "softmax": "softmax"}


@dataclass(frozen=True)
class PoseEstimation:
    """Keypoints found through heatmaps, learned from Gaussians.

    The loss of a keypoint's map is summed over its cells, and averaged over the keypoints whose target shows
    one. It is then summed over the hourglasses (intermediate supervision). With z a map and t its target, in
    (0, 1):

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
        """What an exported file says of its heatmaps, see `bitfactor.runtime.finder`."""
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
        from bitfactor.training.metrics import PCKh  # here, for a quick import of the rest

        return (self.metric or PCKh)(scale=self.scale)

    def metrics(self) -> "MetricCollection":
        """Return fresh metrics, updated with (heatmaps, target)."""
        from torchmetrics import MetricCollection  # here, for a quick import of the rest

        from bitfactor.training.metrics import Peak

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


def _softmax(maps: Tensor, heatmaps: Tensor) -> Tensor:
    fractions = F.normalize(heatmaps.flatten(2), p=1, dim=2)
    return -(fractions * maps.flatten(2).log_softmax(2)).sum(2)


_bce = partial(F.binary_cross_entropy_with_logits, reduction="none")

_LOSSES: dict[Criterion, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda maps, heatmaps: (maps - heatmaps).square().sum((2, 3)),
    "bce": lambda maps, heatmaps: _bce(maps, heatmaps).sum((2, 3)),
    "softmax": _softmax,
}
