"""One step of training: what is computed from one batch, and what it changes.

A moving average of a network.

Softened targets of classification: label smoothing, mixup (Zhang et al. 2018), cutmix (Yun et al. 2019).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.binarization import binarize_
from bitfactor.common.checks import checked, expect_that
from bitfactor.common.errors import InputError
from bitfactor.data import Target
from bitfactor.decompositions import once, once_for_all, orthogonality_penalty
from bitfactor.nn import BinaryLayer, anneal_, binary_layers, merge_
from bitfactor.training.features import AttentionTransfer
from bitfactor.training.flips import flips_of
from bitfactor.training.optimization import MovingAverage, learning_rate, optimizer_of
from bitfactor.training.recipe import Experiment, Recipe
from bitfactor.training.run import Run
from bitfactor.training.tasks import Classification, Teachable, Teacher


def soften(
    inputs: Tensor,
    target: Tensor,
    classes: int,
    smoothing: float,
    mixup: float,
    generator: np.random.Generator,
    cutmix: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Blend each image with another of the batch, and spread `smoothing` of the target over all classes.

    Inputs (N, C, H, W), target (N,) -> the same inputs or blends of them, target (N, classes) whose rows sum
    to 1. With `mixup` and `cutmix` a batch has one of them, each as often.
    """
    soft = F.one_hot(target, classes).to(inputs.dtype)
    soft = soft * (1 - smoothing) + smoothing / classes
    if not (mixup or cutmix):
        return inputs, soft
    cuts = cutmix > 0 and (not mixup or generator.random() < 0.5)
    alpha = cutmix if cuts else mixup
    fraction = float(generator.beta(alpha, alpha))
    partner = torch.from_numpy(generator.permutation(len(inputs))).to(inputs.device)
    if cuts:
        rows, columns = _box(inputs.shape[2:], 1 - fraction, generator)
        inputs, others = inputs.clone(), inputs[partner]
        inputs[:, :, rows, columns] = others[:, :, rows, columns]
        taken = (rows.stop - rows.start) * (columns.stop - columns.start)
        return inputs, _blend(soft, soft[partner], 1 - taken / inputs[0, 0].numel())
    return _blend(inputs, inputs[partner], fraction), _blend(soft, soft[partner], fraction)


def _box(size: Sequence[int], part: float, generator: np.random.Generator) -> tuple[slice, slice]:
    """Return the rows and columns of a box of `part` of an image, cut off at its edges."""
    spans = []
    for side in size:
        length, centre = round(side * part**0.5), int(generator.integers(side))
        start = centre - length // 2
        spans.append(slice(max(start, 0), min(start + length, side)))
    return spans[0], spans[1]


def _blend(a: Tensor, b: Tensor, fraction: float) -> Tensor:
    return a * fraction + b * (1 - fraction)


@checked
def restore(recipe: Recipe, run: Run, *, best: bool = False) -> nn.Module:
    """Return the network of `run` as its last checkpoint left it, or its best one, in evaluation mode."""
    model = build(recipe)
    run.load_outcome_into(model, best=best)
    return model.eval()


_LARGEST_SEED = 2**63


def _warn_of_transforms(model: nn.Module, source: nn.Module) -> None:
    """Say where weights that were taken over are transformed otherwise than in their source."""
    ours = dict(model.named_modules())
    for name, layer in source.named_modules():
        other = ours.get(name)
        if isinstance(layer, BinaryLayer) and isinstance(other, BinaryLayer):
            before, now = _transform_of(layer), _transform_of(other)
            if before != now:
                told = f"--from: weights are {now} where it has {before}, so signs may be others"
                warnings.warn(told, stacklevel=3)
                return


def _transform_of(layer: BinaryLayer) -> str:
    transform = layer.weight_transform
    return "plain" if transform is None else getattr(transform, "__name__", type(transform).__name__).lower()


class Source(NamedTuple):
    """A network to start from, its classes, empty if not known, and the run or file that it is of.

    A run that is resumed needs no network.
    """

    network: nn.Module | None
    labels: tuple[str, ...] = ()
    place: str | None = None


@checked
def build(recipe: Recipe, start_from: Source | None = None, labels: Sequence[str] = ()) -> nn.Module:
    """Return the recipe's network, initialised from its seed; binary, unless the recipe is real.

    With `start_from`, weights, biases and BatchNorm of the same name and shape are taken over from its
    network. Where a weight of it is a latent's, its W is, and so are learned scales, where they are of the
    same kind. What its factors are does not matter. The layer that gives the
    classes stays as drawn where they are others than `labels`.
    """
    torch.manual_seed(recipe.optimization.seed)
    model = recipe.model()
    source = None if start_from is None else start_from.network
    if start_from is not None and source is not None:
        if recipe.binarization.start == "he" and not recipe.real:
            raise InputError(
                "--start", expected="the weights of --from", found="he", fix="leave one of them out"
            )
        same = not (labels and start_from.labels) or tuple(labels) == start_from.labels
        head = "" if same else _head_of(model, len(labels))
        take_over(model, source, without=head)
    if not recipe.real:
        _warn_of_own_layers(model)
        binarize_(model, recipe.binarization, input_shape=(1, *recipe.input_shape))
    if source is not None:
        _take_over_scales(model, source, head)
        _warn_of_transforms(model, source)
    return model


def _warn_of_own_layers(model: nn.Module) -> None:
    own = [name for name, layer in binary_layers(model).items() if not layer.made_as]
    if own:
        warnings.warn(
            f"binary layers of the network get the options of the recipe: {', '.join(own)}; name those that "
            "they are to have, such as --latent",
            UserWarning,
            stacklevel=2,
        )


def _head_of(model: nn.Module, classes: int) -> str:
    """Return the name of the last layer with an output for each class, "" if there is none."""
    found = [name for name, W in model.named_parameters() if W.dim() > 1 and len(W) == classes]
    return found[-1].rpartition(".")[0] if found else ""


def _take_over_scales(model: nn.Module, source: nn.Module, without: str) -> None:
    """Copy the scales of layers whose weights were taken over, so that a next stage starts as one ended."""
    layers = dict(source.named_modules())
    for name, layer in model.named_modules():
        theirs = layers.get(name)
        if (
            isinstance(layer, BinaryLayer)
            and name != without
            and isinstance(theirs, BinaryLayer)
            and _shapes(layer) == _shapes(theirs)
        ):
            layer.scale.load_state_dict(theirs.scale.state_dict())


def _shapes(layer: BinaryLayer) -> list[object]:
    return [
        layer.weight.shape,
        type(layer.scale),
        *(value.shape for value in layer.scale.state_dict().values()),
    ]


@torch.no_grad()
def take_over(model: nn.Module, source: nn.Module, *, without: str = "") -> None:
    """Copy into a full-precision network what another one has learned, be it binary or not.

    Where names or shapes differ, as those of a head for other classes do, `model` stays as it is, with a
    warning. So does the layer `without`. It is an InputError where the weight of no layer fits.
    """
    learned = source.state_dict()
    for name, layer in source.named_modules():
        if isinstance(layer, BinaryLayer):
            learned[f"{name}.weight"] = layer.latent()
    ours, left = dict(model.state_dict()), list[str]()
    if without:
        ours = {name: value for name, value in ours.items() if name.rpartition(".")[0] != without}
        warnings.warn(f"--from: its classes are others, so {without} stays as drawn", stacklevel=3)
    filters = [name for name, value in ours.items() if value.dim() > 1]
    for name, value in ours.items():
        if name in learned and learned[name].shape == value.shape:
            value.copy_(learned[name])
        else:
            left.append(name)
    if filters and not {*filters} - {*left}:
        name = filters[0]
        raise InputError(
            "--from",
            expected=f"a network with layers of the same name and shape, such as {name} {_shape(ours, name)}",
            found=f"{name} {_shape(learned, name)}",
            fix="give the options of its network, or train without --from",
        )
    if left:
        name = left[0]
        more = f"and {len(left) - 1} more stay" if left[1:] else "stays"
        warnings.warn(
            f"--from: {len(ours) - len(left)} of {len(ours)} tensors are taken over; "
            f"{name}, {_shape(learned, name)} there and {_shape(ours, name)} here, {more} as drawn",
            stacklevel=3,  # past the one of no_grad
        )


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    return str(tuple(tensors[name].shape)) if name in tensors else "none"


class Stepper:
    """A network in training.

    `network` is the bare network and `average` its moving average, if the plan has one. `optimizer` is that
    of torch. A checkpoint is loaded into the three before the first step. A teacher of other classes learns
    those of the data from `head_images` first.
    """

    def __init__(
        self,
        experiment: Experiment,
        teacher: nn.Module | None = None,
        start_from: Source | None = None,
        head_images: int = 2048,
    ) -> None:
        self.recipe, self.fabric, self.steps = experiment.recipe, experiment.fabric, experiment.steps
        self.total = experiment.total
        self.plan, self.classes = self.recipe.optimization, len(experiment.interface.labels)
        fabric = self.fabric
        self.teacher = None if teacher is None else teacher.to(fabric.device).eval().requires_grad_(False)
        self._check()
        if isinstance(self.teacher, Teacher):
            self.teacher.fit(experiment.interface)
        self.network = build(self.recipe, start_from, experiment.interface.labels)
        self._expect_statistics()
        if self.plan.batch_norm == "synchronised":
            self.network = nn.SyncBatchNorm.convert_sync_batchnorm(self.network)  # type: ignore[no-untyped-call]
        if self.plan.channels_last:
            for network in (self.network, *([] if self.teacher is None else [self.teacher])):
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network.to(fabric.device)
        self._expect_like(experiment, head_images)
        self.average = MovingAverage(self.network, self.plan.ema) if self.plan.ema else None
        self.features = self._features() if self.plan.feature_weight else None
        self.merged = False
        self.flips = flips_of(self.network, self.recipe)
        self._set_up()

    def _set_up(self) -> None:
        self.optimizer = optimizer_of(self.network, self.plan)
        compiled: Any = torch.compile(self.network) if self.plan.compile else self.network
        self._model, self._optimizer = self.fabric.setup(compiled, self.optimizer)

    def merge(self) -> None:
        """Turn all latents into free weights, whose moments start anew; those of other parameters stay."""
        moments = self.optimizer.state
        for network in self._copies():
            merge_(network)
        if self.average:
            self.average.network.requires_grad_(False)
        self._set_up()
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in moments:
                    self.optimizer.state[parameter] = moments[parameter]
        self.merged = True

    @property
    def evaluated(self) -> nn.Module:
        """The network that is evaluated and exported."""
        return self.average.network if self.average else self.network

    def _copies(self) -> list[nn.Module]:
        return [self.network, self.average.network] if self.average else [self.network]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of them."""
        return {
            "model": self.network.state_dict(),
            "average": self.average.network.state_dict() if self.average else None,
            "optimizer": self.optimizer.state_dict(),
            "merged": self.merged,
            **({"flips": [flips.state() for flips in self.flips]} if self.flips else {}),
        }

    def share_statistics(self) -> None:
        """Give all processes the statistics of the first one, which are those that are saved."""
        if self.fabric.world_size > 1:
            for model in self._copies():
                for buffer in model.buffers():
                    torch.distributed.broadcast(buffer, 0)

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step; each stage has its own schedule."""
        epoch, first = step / self.steps, self.recipe.first_stage
        if epoch < first:
            return learning_rate(self.plan, epoch, first, self.plan.real_weight_rate)
        return learning_rate(self.plan, epoch - first, self.total / self.steps - first)

    def loss_of(self, inputs: Tensor, target: Target, step: int) -> Tensor:
        """Add the gradient of a batch to the parameters and return its loss, without the graph."""
        self._prepare(step)
        inputs, target = self._softened(inputs, target, step)
        parts = list(_parts(inputs, target, self.plan.grad_accum_steps))
        total, whole = torch.zeros((), device=inputs.device), self._whole(target, len(parts))
        with self._holding(len(parts)):
            for i, part in enumerate(parts):
                with self.fabric.no_backward_sync(self._model, enabled=i < len(parts) - 1):
                    loss = self._loss(*part) * (_counted(part[1]) / whole)
                    self.fabric.backward(loss)
                total += loss.detach()
        return total

    def _whole(self, target: Target, parts: int) -> Tensor | int:
        """Return what parts of a batch count together, over the processes, which average their gradients."""
        if not isinstance(target, Mapping) or "weight" not in target:
            return parts
        seen: Any = target["weight"].sum()
        if self.fabric.world_size > 1:
            seen = self.fabric.all_reduce(seen, reduce_op="sum")
        counted: Tensor = seen.clamp_min(1) / self.fabric.world_size
        return counted

    def _holding(self, parts: int) -> AbstractContextManager[None]:
        """Return what lets each weight be made once in a step, where that can be."""
        if parts == 1:
            return once(self.network)
        joined = self.plan.compile or self.fabric.world_size > 1
        return nullcontext() if joined else once_for_all(self.network)

    def update(self) -> None:
        """Change the parameters by the gradient that they hold."""
        if self.plan.max_grad_norm:
            self.fabric.clip_gradients(
                self._model, self._optimizer, max_norm=self.plan.max_grad_norm, error_if_nonfinite=False
            )
        for flips in self.flips:
            flips.before_step(self.plan)
        self._optimizer.step()
        for flips in self.flips:
            flips.after_step(self.plan)
        if self.average:
            self.average.update(self.network, self._step)

    def _prepare(self, step: int) -> None:
        """Set all that depends on the step alone."""
        self._step = step
        key = [self.plan.seed, step, self.fabric.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) % _LARGEST_SEED)
        self._model.train()
        if self.plan.batch_norm == "frozen":
            for module in self.network.modules():
                if isinstance(module, nn.modules.batchnorm._NormBase):
                    module.eval()
        first = self.recipe.first_stage * self.steps
        begun, end = (0, first) if step < first else (first, self.total)
        anneal_(self.network, (step - begun) / (end - begun))
        self.set_stage(step)
        if step == first > 0:  # what signs did while no sign was taken tells nothing
            self.flips = flips_of(self.network, self.recipe)
        staged = self.plan.real_weight_decay
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step) * group["rate"]
            if staged is not None and group["name"] in self.plan.decayed:
                is_first = step < first
                group["weight_decay"] = staged if is_first else self.plan.weight_decay
        self._optimizer.zero_grad()

    def set_stage(self, step: int) -> None:
        """Keep weights real in the epochs of the first stage."""
        binary = self.recipe.binarization.weights and step >= self.recipe.first_stage * self.steps
        for model in self._copies():
            for layer in model.modules():
                if isinstance(layer, BinaryLayer):
                    layer.binary_weights = binary

    def _loss(self, inputs: Tensor, target: Target) -> Tensor:
        if self.plan.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        task, outputs = self.recipe.task, self._model(inputs)
        loss = task.loss(outputs, target)
        if self.teacher is not None and isinstance(task, Teachable):
            with torch.no_grad(), self.fabric.autocast():
                taught = self.teacher(inputs)
            fraction = self.plan.teacher_weight
            loss = (1 - fraction) * loss + fraction * task.loss(outputs, task.taught(taught.float(), target))
        if self.features is not None:
            loss = loss + self.plan.feature_weight * self.features.distance()
        if self.recipe.binarization.orthogonality and not self.recipe.real:
            loss = loss + self.recipe.binarization.orthogonality * orthogonality_penalty(self.network)
        return loss

    def _softened(self, inputs: Tensor, target: Target, step: int) -> tuple[Tensor, Target]:
        if not (self.plan.mixup or self.plan.cutmix or self.plan.label_smoothing):
            return inputs, target
        assert isinstance(target, Tensor)
        draws = np.random.default_rng([self.plan.seed, step, 0])  # the same in all processes
        plan = self.plan
        return soften(inputs, target, self.classes, plan.label_smoothing, plan.mixup, draws, plan.cutmix)

    def _expect_statistics(self) -> None:
        """Refuse a batch of one image where BatchNorm takes its statistics from the batch."""
        share = self.plan.batch_size // (self.fabric.world_size * self.plan.grad_accum_steps)
        normalised = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.network.modules())
        if self.plan.batch_norm == "batch" and share == 1 and normalised:
            raise InputError(
                "--batch-size",
                expected="2 or more images at once in each process, for BatchNorm",
                found="1",
                fix="raise it, lower --grad-accum-steps, or take --batch-norm frozen",
            )

    @torch.no_grad()
    def _expect_like(self, experiment: Experiment, head_images: int) -> None:
        """Refuse a teacher whose outputs are not shaped as the network's, and cannot be made so."""
        if self.teacher is None:
            return
        x = torch.zeros(1, *self.recipe.input_shape, device=self.fabric.device)
        expected = str(tuple(self.network.eval()(x).shape))
        try:
            taught: Any = self.teacher(x)
            found = str(tuple(taught.shape)) if isinstance(taught, Tensor) else f"a {type(taught).__name__}"
        except InputError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            taught, found = None, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        if self._can_learn_head(taught):
            self._learn_head(experiment, head_images)
        elif found != expected:
            raise InputError(
                "--teacher",
                expected=f"outputs {expected} for inputs {tuple(x.shape)}",
                found=found,
                fix="choose a network of the same classes and image size",
            )

    def _features(self) -> AttentionTransfer:
        assert self.teacher is not None
        x = torch.zeros(1, *self.recipe.input_shape, device=self.fabric.device)
        return AttentionTransfer(self.network.eval(), self.teacher, x, self.plan.feature_layers)

    @property
    def notes(self) -> list[str]:
        """What is to be said before a training."""
        found = getattr(self.teacher, "note", ""), str(self.features or "")
        return [note for note in found if note]

    def _can_learn_head(self, outputs: object) -> bool:
        return (
            isinstance(self.teacher, Teacher)
            and not self.teacher.labels
            and isinstance(self.recipe.task, Classification)
            and isinstance(outputs, Tensor)
            and outputs.dim() == 2
            and outputs.shape[1] != self.classes > 0
        )

    def _learn_head(self, experiment: Experiment, images: int) -> None:
        assert isinstance(self.teacher, Teacher)
        batches = experiment.data.train_batches(self.plan.batch_size, self.plan.seed, 0)
        with self.fabric.autocast():
            self.teacher.learn_head(map(self.fabric.to_device, batches), self.classes, images)

    def _check(self) -> None:
        plan, recipe, task, out = self.plan, self.recipe, self.recipe.task, "leave it out"
        for name in ("mixup", "cutmix", "label_smoothing"):
            fits = not getattr(plan, name) or isinstance(task, Classification)
            flag, expected = f"--{name.replace('_', '-')}", "a recipe that classifies"
            expect_that(fits, flag, expected=expected, found=recipe.name, fix=out)
        labels, expected = plan.teacher is None or plan.teacher_weight < 1, "0 with --teacher-weight 1"
        fits = labels or not plan.label_smoothing
        expect_that(fits, "--label-smoothing", expected=expected, found=plan.label_smoothing, fix=out)
        plan.expect_stages()
        first = recipe.first_stage
        for stage in (first, self.total / self.steps - first):
            fits = stage <= 0 or stage >= plan.warmup_epochs
            expected = f"at most the {stage:g} epochs of {'each stage' if first else 'the training'}"
            found, fix = f"{plan.warmup_epochs:g}", "lower it; 0 is none"
            expect_that(fits, "--warmup-epochs", expected=expected, found=found, fix=fix)
        fits, fix = not (plan.diagnose and recipe.real), "leave one of them out"
        expect_that(fits, "--diagnose", expected="a binary network", found="--real", fix=fix)
        fits, expected = plan.diagnose <= self.total, f"at most the {self.total} steps of this training"
        expect_that(fits, "--diagnose", expected=expected, found=plan.diagnose, fix=f"lower it, or {out}")
        fits = not plan.merge_epoch or not (recipe.real or recipe.binarization.latent == "none")
        found = "--real" if recipe.real else "the latent none"
        expect_that(fits, "--merge-epoch", expected="a decomposition to merge", found=found, fix=out)
        fits, expected = not plan.teacher or self.teacher is not None, f"the network of {plan.teacher}"
        expect_that(fits, "train", expected=expected, found="none", fix="pass it as teacher")
        fits, found = self.teacher is None or isinstance(task, Teachable), type(task).__name__
        expect_that(fits, "--teacher", expected="a task that can be taught", found=found, fix=out)


def _counted(part: Target) -> Tensor | int:
    """Return what a part's mean loss counts: the keypoints of people that can be seen, or else 1."""
    weighted = isinstance(part, Mapping) and "weight" in part
    return part["weight"].sum().clamp_min(1) if weighted else 1  # type: ignore[index]


def _parts(inputs: Tensor, target: Target, parts: int) -> Iterator[tuple[Tensor, Target]]:
    """Share a batch out as among processes: every image whose number leaves the same rest."""
    for i in range(parts):
        if isinstance(target, Mapping):
            yield inputs[i::parts], {name: values[i::parts] for name, values in target.items()}
        else:
            yield inputs[i::parts], target[i::parts]
