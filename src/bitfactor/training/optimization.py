"""How a network is trained, as plain values (JSON, flags), and the optimizer that they make."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from bitfactor.binarization import parameter_groups
from bitfactor.binarization.parameter_groups import DECAYED, Kind
from bitfactor.common.checks import check_fields, expect_one_of, expect_that
from bitfactor.decompositions.precision import matmul
from bitfactor.nn.model import copied

_POSITIVE = (
    "epochs",
    "batch_size",
    "learning_rate",
    "real_weight_rate",
    "checkpoint_steps",
    "keep_last",
    "eval_interval",
    "grad_accum_steps",
    "limit",
    "log_every",
    "steps",
)
_FRACTIONS = ("ema", "label_smoothing", "freeze_flips")
_OWN_LIMITS = ("seed", "factor_rate", "plateaus", "teacher_weight")


@dataclass(frozen=True)
class Optimization:
    """How the parameters are trained. By default: Adam, learning rate falling to zero along half a cosine."""

    epochs: int
    """Passes over the training images."""
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
    """One of `bitfactor.training.OPTIMIZERS`: adam, adamw, sgd, rmsprop, muon, soap, or one added
    there."""
    momentum: float | None = None
    """Of sgd, 0.9 if left out, and of muon, 0.95."""
    nesterov: bool = False
    """Let sgd step along the momentum that it will have: Nesterov's (I. Sutskever et al. 2013)."""
    factor_rate: float | Literal["1/rank"] = 1.0
    """Learning rate of the factors, as a fraction of the core's: a number, or one over each factor's rank."""
    latent_rate: float = 1.0
    """Learning rate of free weights and cores, as a fraction of `learning_rate`; 0 keeps them, and factors,
    as they are."""
    alpha_rate: float = 1.0
    """Learning rate of learned scales, as a fraction of `learning_rate`."""
    weight_rate: float = 1.0
    """Learning rate of full-precision weights, as a fraction of `learning_rate`."""
    rest_rate: float = 1.0
    """Learning rate of biases, slopes and normalisations, as a fraction of `learning_rate`."""
    merge_epoch: int = 0
    """Epochs after which decompositions become the free weights that they give, see `bitfactor.nn.merge_`;
    0 is never."""
    weight_decay: float = 0.0
    """Decay of what is `decayed`, added to the gradient; of adamw, muon and soap apart from it."""
    decayed: tuple[Kind, ...] = DECAYED
    """Parameters with decay: free weights and cores (latents), factors, full-precision weights, learned
    scales (alphas), biases, slopes and normalisations (rest)."""
    schedule: Literal["cosine", "linear", "step"] = "cosine"
    """How the learning rate falls: along half a cosine, along a line, or in `plateaus`."""
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
    """Fraction of the target that is spread over all classes (C. Szegedy et al., arXiv 1512.00567)."""
    mixup: float = 0.0
    """Alpha of mixup: images and targets are blended by a fraction from Beta(alpha, alpha); 0 is off."""
    cutmix: float = 0.0
    """Alpha of cutmix: a part of each image, and of its target, is another's, as large as Beta(alpha, alpha)
    says; 0 is off. Beside mixup, each batch has one of the two."""
    gradient_floor: float = 0.0
    """Least norm of the gradient of a free weight's filter, as a fraction of the filter's own; 0 is off. OvSW
    has 0.01 to 0.04."""
    silent_decay: float = 0.0
    """More decay, for free weights whose signs hardly ever flip (OvSW); 0 is off."""
    freeze_flips: float = 0.0
    """Fraction of the steps above which a free weight whose sign flips keeps it for good; 0 is off."""
    teacher: str | None = None
    """A network whose outputs are learned too: the directory of a run, zoo:NAME, FILE.py:NAME (a torch
    module), efficientnet-lite0 to 2, timm:NAME or transformers:NAME. One whose classes are not known first
    learns those of the data: a linear head of its features."""
    teacher_weight: float = 0.5
    """Fraction of the teacher in the loss; 1 is the teacher alone."""
    feature_weight: float = 0.0
    """Weight of the teacher's features beside that loss; 0 is off. A feature is where a map is large, at the
    end of each stage, as in Real-to-Binary (`bitfactor.training.features`)."""
    feature_layers: tuple[str, ...] = ()
    """Modules whose maps learn from the teacher's, as OURS or OURS=THEIRS; stages of equal size if left
    out."""
    real_weight_epochs: int = 0
    """Epochs of a first stage in which only activations are binary; each stage runs the whole schedule."""
    real_weight_rate: float | None = None
    """Learning rate of that stage; the other's if left out."""
    real_weight_decay: float | None = None
    """Decay of that stage; the other's if left out."""

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
        for name, value in vars(self).items():
            if isinstance(value, int | float) and name not in (*_POSITIVE, *_FRACTIONS, *_OWN_LIMITS):
                self._expect(name, value >= 0, "0 or more")
        for name in _FRACTIONS:
            self._expect(name, 0 <= getattr(self, name) < 1, "0 or more, and below 1")
        self._expect(
            "factor_rate", self.factor_rate == "1/rank" or self.factor_rate >= 0, "0 or more, or 1/rank"
        )
        self._expect("seed", 0 <= self.seed < 2**64, "0 or more, and below 2**64")
        moves = self.optimizer in _MOMENTA
        self._expect("momentum", self.momentum is None or moves, "the optimizer sgd or muon")
        if self.nesterov:
            fits = self.optimizer == "sgd" and self.momentum != 0
            self._expect("nesterov", fits, "the optimizer sgd, with momentum")
        self._expect("teacher_weight", 0 <= self.teacher_weight <= 1, "0 to 1")
        for name in ("real_weight_rate", "real_weight_decay"):
            fits = getattr(self, name) is None or self.real_weight_epochs > 0
            self._expect(name, fits, "a first stage, --real-weight-epochs")
        if self.steps is None:
            self.expect_stages()
        rate = min(self.learning_rate, self.real_weight_rate or self.learning_rate)
        self._expect("min_lr", self.min_lr <= rate, f"at most the learning rate {rate:g}")
        if self.schedule == "step":
            self._expect("plateaus", self.plateaus > 1, "2 or more")
            self._expect("min_lr", self.min_lr > 0, "a number above 0")
        else:
            self._expect("plateaus", self.plateaus == type(self).plateaus, "the schedule 'step'")
        self._expect("diagnose", not (self.diagnose and self.compile), "0 with --compile")
        if self.teacher is None:
            for name in ("teacher_weight", "feature_weight"):
                self._expect(name, getattr(self, name) == getattr(type(self), name), "a --teacher")
        self._expect(
            "feature_layers", not self.feature_layers or self.feature_weight > 0, "a --feature-weight"
        )

    def expect_stages(self) -> None:
        """Raise InputError unless each stage has epochs; of a number of steps, the data say how many."""
        for name in ("real_weight_epochs", "merge_epoch"):
            self._expect(name, getattr(self, name) < self.epochs, f"fewer than {self.epochs}")

    def _expect(self, name: str, fits: bool, expected: str) -> None:
        expect_that(fits, f"--{name.replace('_', '-')}", expected=expected, found=getattr(self, name))


_FIRST_SHARE = 0.01  # of the learning rate, at the start of a warm-up


def learning_rate(plan: Optimization, epoch: float, epochs: float, peak: float | None = None) -> float:
    """Return the rate after `epoch` (or a fraction) of `epochs`; it falls from `peak`, or else the plan's."""
    peak = plan.learning_rate if peak is None else peak
    if epoch < plan.warmup_epochs:
        return peak * max(_FIRST_SHARE, epoch / plan.warmup_epochs)
    if plan.schedule == "step":
        plateau = min(int(epoch / epochs * plan.plateaus), plan.plateaus - 1)
        falls = plan.min_lr / peak
        return peak * math.pow(falls, plateau / (plan.plateaus - 1))
    fraction = min((epoch - plan.warmup_epochs) / max(epochs - plan.warmup_epochs, 1e-9), 1.0)
    left = 1 - fraction if plan.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * fraction))
    return plan.min_lr + (peak - plan.min_lr) * left


class _ForLatents(AdamW, ABC):
    """AdamW, except for the free weights and cores that a class `takes`: it moves these itself."""

    @abstractmethod
    def takes(self, p: Tensor) -> bool:
        """Return whether a free weight or core is not left to AdamW."""

    @abstractmethod
    def move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Take a step with one of these, whose decay is done and whose state counts the steps."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the parameters by their gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moved: list[tuple[nn.Parameter, Tensor]] = []
        for group in self.param_groups:
            for p in group["params"] if group.get("name") == "latents" else ():
                if p.grad is not None and self.takes(p):
                    self.state[p].setdefault("step", torch.tensor(0.0)).add_(1)
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    self.move(p, p.grad, group)
                    moved.append((p, p.grad))
                    p.grad = None  # AdamW leaves it out
        super().step()
        for p, gradient in moved:
            p.grad = gradient
        return loss


class Muon(_ForLatents):
    """Momentum made orthogonal, for free weights and cores of binary layers; AdamW for all else.

    K. Jordan et al. 2024 (`KellerJordan/Muon`). The momentum of a weight (O, ...) is a matrix U S V^T with a
    row per filter. It steps along U V^T, as five rounds of a Newton-Schulz iteration give it nearly. The step
    is as large as one of AdamW, 0.2 in the root mean square (J. Liu et al., arXiv 2502.16982).

    Example
    -------
    >>> Muon(bitfactor.parameter_groups(model, lr=1e-3)).step()
    """

    def __init__(self, params: Any, momentum: float = 0.95, **options: Any) -> None:
        super().__init__(params, **options)
        self.momentum = momentum

    def takes(self, p: Tensor) -> bool:
        return p.dim() > 1

    def move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        average = state["momentum"].lerp_(gradient, 1 - self.momentum)
        along = orthogonal(gradient.lerp(average, self.momentum).flatten(1))
        p.add_(along.view_as(p), alpha=-0.2 * group["lr"] * math.sqrt(max(along.shape)))


def orthogonal(matrix: Tensor) -> Tensor:
    """Return nearly U V^T of a matrix U S V^T: its singular values become 0.7 to 1.2."""
    X: Tensor = matrix if len(matrix) <= matrix.shape[1] else matrix.mT
    X = X / X.norm().clamp_min(1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X if len(matrix) <= matrix.shape[1] else X.mT


class SOAP(_ForLatents):
    """Adam in the eigenbasis of the window's gradients, for free weights and cores; AdamW for all else.

    N. Vyas et al. 2024 (arXiv 2409.11321), on one mode: that of the window, as `Window` and `Cosine` have it.
    The gradient is a matrix G with a column per tap of the window. Q holds the eigenvectors of the moving
    average of G^T G. Adam's step is that of G Q, and Q^T takes it back. Q starts as the eigenvectors of the
    first gradient's G^T G. Every `frequency` steps it goes one power iteration on. Its columns then stand by
    eigenvalue, largest first, and the second moment's with them.

    The window is the last two modes of a weight, or the last of three. A weight without a window, 1x1 or of a
    linear layer, is AdamW's. The decay rates `betas` are AdamW's too; the paper has (0.95, 0.95).

    Example
    -------
    >>> SOAP(bitfactor.parameter_groups(model, lr=1e-3), frequency=10).step()
    """

    def __init__(self, params: Any, frequency: int = 10, **options: Any) -> None:
        super().__init__(params, **options)
        self.frequency = frequency

    def takes(self, p: Tensor) -> bool:
        return _taps(p) > 1

    def move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        G = gradient.reshape(-1, _taps(p))
        state, (beta1, beta2) = self.state[p], group["betas"]
        if "basis" not in state:
            state |= {"first": torch.zeros_like(G), "second": torch.zeros_like(G)}
            state["covariance"] = G.new_zeros(G.shape[1], G.shape[1])
            state["basis"] = torch.linalg.eigh(matmul(G.mT, G)).eigenvectors
        Q, steps = state["basis"], int(state["step"])
        first = matmul(state["first"].lerp_(G, 1 - beta1), Q) / (1 - beta1**steps)
        second = state["second"].lerp_(matmul(G, Q).square(), 1 - beta2) / (1 - beta2**steps)
        along = matmul(first / (second.sqrt() + group["eps"]), Q.mT)
        p.add_(along.view_as(p), alpha=-group["lr"])
        covariance = state["covariance"].lerp_(matmul(G.mT, G), 1 - beta2)
        if steps % self.frequency == 0:
            product = covariance @ Q
            order = (Q * product).sum(0).argsort(descending=True)  # by the eigenvalues, nearly
            state["basis"] = torch.linalg.qr(product[:, order]).Q
            state["second"] = state["second"][:, order]


def _taps(weight: Tensor) -> int:
    """Return the size of a weight's window, 1 where it has none."""
    return math.prod(weight.shape[2:][-2:])


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": partial(Adam, fused=True),  # which takes half the time on a CPU
    "adamw": partial(AdamW, fused=True),
    "sgd": SGD,
    "rmsprop": RMSprop,
    "muon": Muon,
    "soap": SOAP,
}
"""Optimizers by name: each is called with the parameters in groups, which have `lr` and `weight_decay`.

>>> OPTIMIZERS["lion"] = Lion  # in a file that `--import` names
"""
_MOMENTA = {"sgd": 0.9, "muon": 0.95}


def moves_latents_alone(optimizer: str) -> bool:
    """Return whether an optimizer treats free weights and cores alone in its own way, and so needs some."""
    made = OPTIMIZERS[optimizer]
    return isinstance(made, type) and issubclass(made, _ForLatents)


def optimizer_of(model: nn.Module, plan: Optimization) -> Optimizer:
    """Return the optimizer; a group's `rate` is its fraction of the learning rate, see `parameter_groups`."""
    groups = parameter_groups(
        model,
        lr=plan.learning_rate,
        weight_decay=plan.weight_decay,
        factor_rate=plan.factor_rate,
        rates={
            "latents": plan.latent_rate,
            "alphas": plan.alpha_rate,
            "weights": plan.weight_rate,
            "rest": plan.rest_rate,
        },
        decayed=plan.decayed,
    )
    options: dict[str, Any] = {}
    if plan.optimizer in _MOMENTA:
        options["momentum"] = _MOMENTA[plan.optimizer] if plan.momentum is None else plan.momentum
    if plan.nesterov:
        options["nesterov"] = True
    return OPTIMIZERS[plan.optimizer](groups, **options)


class MovingAverage:
    """A copy of a network whose parameters and statistics are exponential averages over the steps.

    In early steps, t, the decay is (1 + t) / (10 + t) at most: else the first draw stays in it for long. The
    average of iterates is that of B. T. Polyak and A. B. Juditsky 1992, this form of it TensorFlow's.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.network = copied(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the parameters as they are after so many earlier steps."""
        now, decay = model.state_dict(), min(self.decay, (1 + step) / (10 + step))
        for name, averaged in self.network.state_dict().items():
            if averaged.is_floating_point():
                averaged.lerp_(now[name], 1 - decay)
            else:
                averaged.copy_(now[name])
