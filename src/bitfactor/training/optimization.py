"""How a network is trained, as plain values (JSON, flags), and the optimizer that they make."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from bitfactor.binarization import parameter_groups
from bitfactor.common.checks import check_fields, expect_one_of, expect_that
from bitfactor.nn.model import copied

_POSITIVE = (
    "epochs",
    "batch_size",
    "learning_rate",
    "checkpoint_steps",
    "keep_last",
    "eval_interval",
    "grad_accum_steps",
    "limit",
    "log_every",
    "steps",
)
_NOT_NEGATIVE = (
    "weight_decay",
    "min_lr",
    "warmup_epochs",
    "max_grad_norm",
    "mixup",
    "real_weight_epochs",
    "diagnose",
    "merge_epoch",
    "momentum",
)
_FRACTIONS = ("ema", "label_smoothing", "teacher_weight")


@dataclass(frozen=True)
class Optimization:
    """How the parameters are trained. By default: Adam, learning rate falling to zero along half a cosine."""

    epochs: int
    batch_size: int
    """Images per step, of all processes together."""
    learning_rate: float
    """Learning rate of the first step after the warm-up."""

    seed: int = 0
    """Seed of initial weights, order and augmentation."""
    checkpoint_steps: int = 100
    """Steps between checkpoints; one is written at the end of each epoch too."""
    keep_last: int = 1
    """How many of the last checkpoints to keep, beside the best."""
    steps: int | None = None
    """Steps to train, in place of epochs: as many of these as the steps need, the last one cut short."""
    log_every: int | None = None
    """Steps between rows of the log within an epoch, in steps.jsonl; none are written if left out."""
    eval_interval: int = 1
    """Epochs between evaluations on the test set; the last epoch is evaluated in any case."""
    limit: int | None = None
    """At most this many images an epoch, and to evaluate on: for a trial."""

    optimizer: str = "adam"
    """One of `bitfactor.training.OPTIMIZERS`: adam, adamw, sgd, rmsprop, or one that was added there."""
    momentum: float | None = None
    """Of sgd; 0.9 if left out."""
    factor_rate: float | Literal["1/rank"] = 1.0
    """Learning rate of the factors, as a fraction of the core's: a number, or one over each factor's rank."""
    merge_epoch: int = 0
    """Epochs after which decompositions become the free weights that they give, see `bitfactor.nn.merge_`;
    0 is never."""
    weight_decay: float = 0.0
    """Decay of weights and latents, added to the gradient, of adamw apart from it; never of alpha, biases and
    normalisations."""
    schedule: Literal["cosine", "step"] = "cosine"
    """How the learning rate falls: along half a cosine, or in `plateaus`."""
    plateaus: int = 3
    """Step schedule: number of equal plateaus; the rate falls geometrically from one to the next."""
    min_lr: float = 0.0
    """Learning rate at the end; above 0 with the step schedule."""
    warmup_epochs: float = 0.0
    """Epochs in which the learning rate rises from nearly 0 along a line."""
    max_grad_norm: float = 0.0
    """Largest norm of the gradient; 0 leaves it as it is."""
    grad_accum_steps: int = 1
    """Parts in which each process takes its part of a batch, where memory is short."""

    ema: float = 0.0
    """Decay of a moving average of the network, which is then what is evaluated and exported; 0 is off."""
    label_smoothing: float = 0.0
    """Fraction of the target that is spread over all classes."""
    mixup: float = 0.0
    """Alpha of mixup: images and targets are blended by a fraction from Beta(alpha, alpha); 0 is off."""
    teacher: str | None = None
    """Directory of a run of the real-valued network, whose outputs are learned too."""
    teacher_weight: float = 0.5
    """Fraction of the teacher in the loss."""
    real_weight_epochs: int = 0
    """Epochs of a first stage in which only activations are binary; each stage runs the whole schedule."""

    batch_norm: Literal["batch", "synchronised", "frozen"] = "batch"
    """Statistics of BatchNorm: of each process's part, of the joined batch (on GPUs), or left as they are."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the arithmetic; weights are kept, and made out of their factors, in float32."""
    channels_last: bool = False
    """Lay images out with the channel last, which is faster for convolutions."""
    compile: bool = False
    """Compile the network with torch.compile."""
    diagnose: int = 0
    """Measure what every so many steps do to each layer's weight, see `bitfactor.metrics.Moved`; 0 is off."""

    def __post_init__(self) -> None:
        check_fields(self)
        expect_one_of("optimizer", self.optimizer, OPTIMIZERS)
        for name in _POSITIVE:
            self._expect(name, getattr(self, name) is None or getattr(self, name) > 0, "a number above 0")
        for name in _NOT_NEGATIVE:
            self._expect(name, (getattr(self, name) or 0) >= 0, "0 or more")
        for name in _FRACTIONS:
            self._expect(name, 0 <= getattr(self, name) < 1, "0 or more, and below 1")
        self._expect(
            "factor_rate", self.factor_rate == "1/rank" or self.factor_rate >= 0, "0 or more, or 1/rank"
        )
        self._expect("seed", 0 <= self.seed < 2**64, "0 or more, and below 2**64")
        self._expect("momentum", self.momentum is None or self.optimizer == "sgd", "the optimizer sgd")
        self._expect("real_weight_epochs", self.real_weight_epochs < self.epochs, f"fewer than {self.epochs}")
        self._expect("merge_epoch", self.merge_epoch < self.epochs, f"fewer than {self.epochs}")
        rate = self.learning_rate
        self._expect("min_lr", self.min_lr <= rate, f"at most the learning rate {rate:g}")
        if self.schedule == "step":
            self._expect("plateaus", self.plateaus > 1, "2 or more")
            self._expect("min_lr", self.min_lr > 0, "a number above 0")
        else:
            self._expect("plateaus", self.plateaus == type(self).plateaus, "the schedule 'step'")
        self._expect("diagnose", not (self.diagnose and self.compile), "0 with --compile")
        if self.teacher is None:
            self._expect("teacher_weight", self.teacher_weight == type(self).teacher_weight, "a --teacher")

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        expect_that(fits, f"--{name.replace('_', '-')}", expected=expected, found=getattr(self, name))


_FIRST_SHARE = 0.01  # of the learning rate, at the start of a warm-up


def learning_rate(plan: Optimization, epoch: float, epochs: float) -> float:
    """Return the rate after `epoch` (a fraction, too) of `epochs`.

    Example
    -------
    >>> plan = Optimization(epochs=90, batch_size=256, learning_rate=1e-3, schedule="step",
    ...                     plateaus=3, min_lr=1e-6)
    >>> [f"{learning_rate(plan, epoch, 90):.1e}" for epoch in (0, 29.9, 30, 89.9)]
    ['1.0e-03', '1.0e-03', '3.2e-05', '1.0e-06']
    """
    if epoch < plan.warmup_epochs:
        return plan.learning_rate * max(_FIRST_SHARE, epoch / plan.warmup_epochs)
    if plan.schedule == "step":
        plateau = min(int(epoch / epochs * plan.plateaus), plan.plateaus - 1)
        falls = plan.min_lr / plan.learning_rate
        return plan.learning_rate * math.pow(falls, plateau / (plan.plateaus - 1))
    fraction = (epoch - plan.warmup_epochs) / max(epochs - plan.warmup_epochs, 1e-9)
    fallen = 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
    return plan.min_lr + (plan.learning_rate - plan.min_lr) * fallen


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": partial(Adam, fused=True),  # which takes half the time on a CPU
    "adamw": partial(AdamW, fused=True),
    "sgd": SGD,
    "rmsprop": RMSprop,
}
"""Optimizers by name: each is called with the parameters in groups, which have `lr` and `weight_decay`.

>>> OPTIMIZERS["lion"] = Lion  # in a file that `--import` names
"""
_MOMENTUM = 0.9


def optimizer_of(model: nn.Module, plan: Optimization) -> Optimizer:
    """Return the optimizer; a group's `rate` is its fraction of the learning rate, see `parameter_groups`."""
    groups = parameter_groups(
        model, lr=plan.learning_rate, weight_decay=plan.weight_decay, factor_rate=plan.factor_rate
    )
    momentum = _MOMENTUM if plan.momentum is None else plan.momentum
    return OPTIMIZERS[plan.optimizer](groups, **({"momentum": momentum} if plan.optimizer == "sgd" else {}))


class MovingAverage:
    """A copy of a network whose parameters and statistics are exponential averages over the steps.

    Example
    -------
    >>> average = MovingAverage(model, decay=0.999)
    >>> optimizer.step()
    >>> average.update(model)
    >>> average.network(inputs)
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copied(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the parameters as they are now."""
        now = model.state_dict()
        for name, averaged in self.network.state_dict().items():
            if averaged.is_floating_point():
                averaged.lerp_(now[name], 1 - self.decay)
            else:
                averaged.copy_(now[name])
