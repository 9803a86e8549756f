"""The sign function and the estimators: gradients that stand in for its own, zero almost everywhere."""

import copy
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfactor.common.checks import (
    checked,
    expect_new_name,
    expect_sound,
    name_of,
    remember,
    shown,
)
from bitfactor.common.errors import InputError
from bitfactor.decompositions.compiled import is_traced
from bitfactor.nn.product import packs, sign, tanh_gradient


class _Sloped(torch.autograd.Function):
    """x, with a slope in its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, slope: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


class _StraightThrough(_Sloped):
    @staticmethod
    def forward(x: Tensor, slope: Tensor) -> Tensor:
        return sign(x)


class _Annealed(torch.autograd.Function):
    """x or its sign, with the slope of `annealed`: backward makes it from x, and nothing else is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, steepness: float, of_sign: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.steepness = steepness
        return sign(x) if of_sign else x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return tanh_gradient(x, gradient, max(1.0, ctx.steepness), ctx.steepness), None, None


def sloped(x: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
    """Return x, whose gradient is that of the output times slope(x)."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    with torch.no_grad():
        at_x = slope(x)
    return _Sloped.apply(x, at_x)  # type: ignore[no-any-return, no-untyped-call]


def straight_through(x: Tensor, slope: Callable[[Tensor], Tensor]) -> Tensor:
    """Return sign(x) whose gradient is that of the output times slope(x).

    Example
    -------
    >>> x = torch.tensor([-2.0, 0.3], requires_grad=True)
    >>> straight_through(x, clipped).sum().backward()
    >>> x.grad
    tensor([0., 1.])
    """
    if is_traced():  # a trace of torch.jit keeps no functions of Python
        y = x * slope(x).detach()
        return sign(x) + (y - y.detach())
    if not (torch.is_grad_enabled() and x.requires_grad):
        return sign(x)
    with torch.no_grad():
        at_x = slope(x)
    return _StraightThrough.apply(x, at_x)  # type: ignore[no-any-return, no-untyped-call]


def clipped(x: Tensor) -> Tensor:
    """Slope 1 where abs(x) < 1, else 0, in bytes: the derivative of hard tanh."""
    return x.abs().lt_(1).to(torch.int8)


def wide(x: Tensor) -> Tensor:
    """Slope 1 where abs(x) < 3, else 0: the window of PokeBNN (Y. Zhang et al., arXiv 2112.00133)."""
    return x.abs().lt_(3).to(torch.int8)


def polynomial(x: Tensor) -> Tensor:
    """Slope 2 - 2 abs(x) where abs(x) < 1, else 0: ApproxSign of Bi-Real Net."""
    return (2 - 2 * x.abs()).clamp_min(0)


def annealed(x: Tensor, progress: Tensor, decades: int = 2) -> Tensor:
    """Slope k t (1 - tanh(t x)^2), t = 10^(2 progress - 1), k = max(1 / t, 1): the estimator of IR-Net.

    As progress goes from 0 to 1 the surrogate k tanh(t x) goes from nearly the identity to nearly sign. With
    other `decades` t rises through as many, to the same end. It is computed in float32 at least: in bfloat16
    what is left of 1 would be 0.
    """
    t = _steepness(progress, decades)
    wide = x if x.dtype == torch.float64 else x.float()
    return (torch.clamp_min(1 / t, 1) * t * (1 - torch.tanh(t * wide).square())).to(x.dtype)


def annealed_late(x: Tensor, progress: Tensor) -> Tensor:
    """Slope of `annealed` with t = 10^(4 progress - 3), for longer the identity: IR-Net's code, ResNet-20."""
    return annealed(x, progress, 4)


_Progress = TypeVar("_Progress", float, Tensor)


def _steepness(progress: _Progress, decades: int) -> _Progress:
    """Return t of the annealed estimators, which ends at 10."""
    return 10 ** (decades * progress - decades + 1)


_DECADES: dict[Callable[..., Tensor], int] = {annealed: 2, annealed_late: 4}


def closed_clip(W: Tensor) -> Tensor:
    """Slope 1 where abs(W) <= 1, else 0: an absolute mask bounds the growth of factors."""
    return W.abs().le_(1)


def over_rms(W: Tensor) -> Tensor:
    """Return W / rms(W), one rms per filter: a gradient through it is free of W's scale.

    A filter of zeros stays as it is.
    """
    square = W.flatten(1).square().mean(1)
    rms = torch.where(square > torch.finfo(W.dtype).tiny, square, 1).sqrt()
    return W / rms.view(-1, *(1,) * (W.dim() - 1))


def identity(x: Tensor) -> Tensor:
    """Slope 1: for inputs that are signs already, whose gradient belongs to who made them."""
    return x.new_ones((), dtype=torch.int8)


class OverDeviation(nn.Module):
    """x over the deviation of its sample, with the gradient of ApproxSign: the inputs of ReCU.

    In training alone, as in the authors' code (Z. Xu et al., arXiv 2103.12369): the sign is that of x.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or x[0].numel() < 2:
            return sloped(x, polynomial)
        variance = x.flatten(1).var(1).add(1e-5).view(-1, *(1,) * (x.dim() - 1))
        return sloped(x / variance.sqrt(), polynomial)


Slope = Callable[..., Tensor]
EstimatorLike = str | Slope | nn.Module | type[nn.Module]


class Estimator(NamedTuple):
    """The gradient of a sign: a slope, or what makes a function whose value's sign and own gradient count."""

    slope: Slope = identity
    surrogate: Callable[[], Slope] | None = None


ACTIVATION_ESTIMATORS: dict[str, Estimator] = {
    "clipped": Estimator(clipped),
    "wide": Estimator(wide),
    "polynomial": Estimator(polynomial),
    "over_deviation": Estimator(surrogate=OverDeviation),
    "annealed": Estimator(annealed),
    "annealed_late": Estimator(annealed_late),
    "identity": Estimator(identity),
}

WEIGHT_ESTIMATORS: dict[str, Estimator] = {
    "clipped": Estimator(closed_clip),
    "annealed": Estimator(annealed),
    "annealed_late": Estimator(annealed_late),
    "rms": Estimator(surrogate=lambda: over_rms),
    "identity": Estimator(identity),
}


class Sign(nn.Module):
    """sign(x) with the gradient of an estimator, the interface of the signs of inputs and of weights.

    Attributes
    ----------
    estimator
        Its name.
    slope
        The gradient in place of the sign's own, from what the sign is taken of.
    surrogate
        What is applied before the sign, which then passes gradients on whole; None for a slope alone.
    decades
        Through how many powers of 10 the steepness rises where the gradient anneals; None where it does not.
    annealing
        Whether somebody sets `progress`, where there is one; None before anybody has looked.
    """

    known: ClassVar[dict[str, Estimator]]
    where: ClassVar[str]
    progress: Tensor
    annealing: bool | None = None

    def __init__(self, estimator: EstimatorLike = "clipped") -> None:
        super().__init__()
        self.estimator = estimator_name(self.where, estimator, self.known)
        self.slope, surrogate = self.known[self.estimator]
        self.surrogate = None if surrogate is None else surrogate()
        self.decades = next((number for slope, number in _DECADES.items() if slope is self.slope), None)
        if self.decades is not None:
            self.register_buffer("progress", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self._expect_annealed()
        if self.surrogate is not None:
            return straight_through(self.surrogate(x), identity)
        if (t := self._fused(x)) is not None:
            return _Annealed.apply(x, t, True)  # type: ignore[no-any-return, no-untyped-call]
        return straight_through(x, self._slope(x))

    def sloped(self, x: Tensor) -> Tensor:
        """Return what has the sign of the output, with the gradient that `forward` gives x."""
        self._expect_annealed()
        if self.surrogate is not None:
            return self.surrogate(x)
        if (t := self._fused(x)) is not None:
            return _Annealed.apply(x, t, False)  # type: ignore[no-any-return, no-untyped-call]
        return x if self.slope is identity else sloped(x, self._slope(x))

    def _fused(self, x: Tensor) -> float | None:
        """Return the steepness of an annealed estimator whose slope the compiled core takes from x."""
        if self.decades is None or not (torch.is_grad_enabled() and x.requires_grad and packs(x)):
            return None
        return _steepness(float(self.progress), self.decades)

    @property
    def clips(self) -> bool:
        """Whether the gradient is that of a clip, which the compiled core keeps as bits."""
        return self.surrogate is None and self.slope in (clipped, closed_clip)

    def _slope(self, x: Tensor) -> Slope:
        return self.slope if self.decades is None else partial(self.slope, progress=self.progress)

    def _expect_annealed(self) -> None:
        if self.annealing is not None or not self.training or not torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling():
            return
        progresses = _progresses(self)
        self.annealing = any(bool(progress.any()) for progress in progresses)
        if progresses and not self.annealing:
            warnings.warn(
                f"estimator {self.estimator!r} anneals, and nobody has set how far training is: call "
                "bitfactor.nn.anneal_(model, epoch / epochs) before each epoch",
                UserWarning,
                stacklevel=2,
            )

    def extra_repr(self) -> str:
        return self.estimator


class SignActivation(Sign):
    """sign(x) of a layer's input, with one of the straight-through gradients of `bitfactor.nn.sign`.

    The annealed one has a buffer `progress`, 0 at the start of training and 1 at its end; `anneal_` sets it.

    Example
    -------
    >>> SignActivation("polynomial")(torch.tensor([0.0, 0.1]))
    tensor([-1.,  1.])
    """

    known = ACTIVATION_ESTIMATORS
    where = "activation_estimator"


class SignWeight(Sign):
    """sign(W) of a layer's filters, as `SignActivation`."""

    known = WEIGHT_ESTIMATORS
    where = "weight_estimator"


@checked
def anneal_(model: nn.Module, progress: float) -> None:
    """Set how far training has come, 0 to 1, in each annealed estimator and weight transform of a model.

    Example
    -------
    >>> anneal_(model, epoch / epochs)
    """
    for module in model.modules():
        if isinstance(module, Sign):
            module.annealing = True
        transform = getattr(module, "weight_transform", None)
        for one in (module if isinstance(module, Sign) else None, transform):
            for buffer in _progresses(one):
                buffer.fill_(progress)


def _progresses(module: object) -> list[Tensor]:
    """Return the buffers of a module called `progress`; of what is no module there are none."""
    named = module.named_buffers() if isinstance(module, nn.Module) else ()
    return [buffer for name, buffer in named if name.rpartition(".")[2] == "progress"]


def register_estimator(
    name: str, *, slope: Slope | None = None, module: Callable[[], nn.Module] | nn.Module | None = None
) -> None:
    """Make an estimator of one's own known by a name, for activations and for weights.

    Parameters
    ----------
    slope
        The gradient in place of the sign's own: from what the sign is taken of, to as many values or to one.
    module
        Where a slope is not enough: a class, or a function, that makes a module; or one to copy. It gives
        what the sign is taken of in its place, and its own gradient counts: a threshold that learns is
        `x - self.threshold`. A buffer `progress` in it is what `anneal_` sets.

    Raises
    ------
    InputError
        If the name is taken, or `check_estimator` finds values or gradients that no sign can have.

    Example
    -------
    >>> bitfactor.nn.register_estimator("triangle", slope=lambda x: (1 - x.abs()).clamp_min(0))
    """
    expect_new_name("register_estimator", name, [*ACTIVATION_ESTIMATORS, *WEIGHT_ESTIMATORS])
    if (slope is None) == (module is None):
        found = "none" if slope is None else "both"
        raise InputError(
            "register_estimator", expected="slope or module", found=found, fix="pass one of them"
        )
    value = slope if module is None else module
    _add(name, value, is_slope=module is None)
    remember("estimator", name, value)


def estimator_name(where: str, value: EstimatorLike, known: Mapping[str, Estimator]) -> str:
    """Return the name of an estimator; a slope, a class or a module is registered under its own."""
    is_slope = not isinstance(value, nn.Module | type)
    return name_of(where, value, known, lambda name: _add(name, value, is_slope=is_slope), table="estimator")


def estimator_of(value: Any) -> Estimator:
    """Return what an object stands for: a function is a slope, a class or a module makes surrogates."""
    if isinstance(value, nn.Module):
        return Estimator(surrogate=lambda: copy.deepcopy(value))
    return Estimator(surrogate=value) if isinstance(value, type) else Estimator(value)


def _add(name: str, value: Any, *, is_slope: bool) -> None:
    is_made = is_slope or isinstance(value, nn.Module)
    made = estimator_of(value) if is_made else Estimator(surrogate=value)
    expect_sound(f"estimator {name!r}", value, estimator_faults(made))
    ACTIVATION_ESTIMATORS[name] = WEIGHT_ESTIMATORS[name] = made


def _gradient_of(y: Tensor, x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
    return torch.zeros(()) if gradient is None else gradient


def estimator_faults(estimator: Estimator) -> Iterator[dict[str, str]]:
    """Yield what is wrong with the values and gradients of an estimator, as an `InputError` has it."""
    x, what = torch.linspace(-2, 2, 54).view(2, 3, 3, 3).requires_grad_(), "slopes"
    y: Any
    if estimator.surrogate is not None:
        surrogate = estimator.surrogate()
        if not isinstance(surrogate, nn.Module | types.FunctionType):
            yield {
                "expected": "a module",
                "found": shown(surrogate),
                "fix": "pass a class, or what makes one",
            }
            return
        y, what = surrogate(x), "values"
    else:
        y = estimator.slope(x.detach())
    if not isinstance(y, Tensor) or (y.shape != x.shape and (what == "values" or y.numel() > 1)):
        found = str(tuple(y.shape)) if isinstance(y, Tensor) else shown(y)
        yield {"expected": f"{what} shaped {tuple(x.shape)}", "found": found, "fix": "return one for each"}
    elif not y.isfinite().all():
        yield {"expected": f"finite {what}", "found": "NaN or infinity", "fix": "bound them, as at 0"}
    elif estimator.surrogate is None:
        if not y.any():
            yield {"expected": "a gradient", "found": "slopes of 0 alone", "fix": "return others"}
    elif set(y.detach().flatten().tolist()) == {-1.0, 0.0, 1.0}:
        yield {"expected": "two values", "found": "-1, 0 and 1", "fix": "give 0 a side: a layer holds signs"}
    elif not y.requires_grad or not _gradient_of(y, x).any():
        yield {"expected": "a gradient to its input", "found": "none", "fix": "give it one, as a slope"}
