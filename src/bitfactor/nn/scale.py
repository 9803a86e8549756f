"""The scaling factors alpha, which multiply a binary layer's output (equation 2), and XNOR-Net's K."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bitfactor.common.checks import checked, expect_new_name, expect_sound, name_of, remember, shown
from bitfactor.common.errors import InputError
from bitfactor.decompositions.compiled import is_followed
from bitfactor.nn.model import is_watched


def analytic_alpha(W: Tensor) -> Tensor:
    """Return mean abs(W) of every filter, (O, ...) -> (O,): the alpha of XNOR-Net."""
    if is_followed() or not (torch.is_grad_enabled() and W.requires_grad):
        return W.abs().flatten(1).mean(1)
    return _MeanMagnitude.apply(W)  # type: ignore[no-any-return, no-untyped-call]


class _MeanMagnitude(torch.autograd.Function):
    """Keeps a byte of each weight for backward, not the weight."""

    @staticmethod
    def forward(ctx: Any, W: Tensor) -> Tensor:
        ctx.save_for_backward(W.sign().to(torch.int8))
        return W.abs().flatten(1).mean(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (sign,) = ctx.saved_tensors
        share = gradient / sign[0].numel()
        of_W: Tensor = sign * share.view(-1, *(1,) * (sign.dim() - 1))
        return of_W


def over_channels(alpha: Tensor, W: Tensor) -> Tensor:
    """Shape alpha (O,) to broadcast over the output of a layer with this weight: (O, 1, 1) after a conv2d."""
    return alpha.view(-1, *(1,) * (W.dim() - 2))


class Scale(nn.Module, ABC):
    """Interface of the scales: y alpha, one factor alpha for each output channel, which a file holds.

    One that keeps nothing of the filters of a layer's first weight, W, needs no `__init__` of its own.
    """

    def __init__(self, W: Tensor | None = None) -> None:
        super().__init__()

    @abstractmethod
    def alpha_of(self, W: Tensor) -> Tensor:
        """Return alpha, (O,), of a layer whose filters are W, (O, ...), before their sign is taken."""

    def forward(self, y: Tensor, W: Tensor) -> Tensor:
        """Return the product y of the signs, (N, O, ...), scaled."""
        return y * over_channels(self.alpha_of(W), W).to(y.dtype)

    def fits_file(self) -> bool:
        """Return whether the scale is alpha and no more, or the scale per position that a file knows."""
        known = {Scale.forward, NoScale.forward, LearnedMapScale.forward}
        return type(self).forward in known and not is_watched(self)


class NoScale(Scale):
    """alpha = 1: BNN."""

    def alpha_of(self, W: Tensor) -> Tensor:
        return W.new_ones(W.shape[0])

    def forward(self, y: Tensor, W: Tensor) -> Tensor:
        return y


class AnalyticScale(Scale):
    """alpha_i = mean abs(W_i), the paper's analytic factor; its gradient reaches W unless detached."""

    def __init__(self, *, detach: bool = False) -> None:
        super().__init__()
        self.detach = detach

    def alpha_of(self, W: Tensor) -> Tensor:
        return analytic_alpha(W.detach() if self.detach else W)

    def extra_repr(self) -> str:
        return "detached" if self.detach else ""


class LearnedScale(Scale):
    """One learned alpha per output channel, of any sign (section 3.3 of the paper)."""

    @checked
    def __init__(self, alpha: Tensor) -> None:
        super().__init__()
        self.alpha = nn.Parameter(alpha.detach().clone())

    def alpha_of(self, W: Tensor) -> Tensor:
        return self.alpha


class LearnedMapScale(Scale):
    """Gamma, a learned scale per channel and position, as an outer product (XNOR-Net++).

    `maps` are tensors that broadcast to (O, H, W). They are (O, H, W); or (O, 1, 1), (1, H, W); or
    (O, 1, 1), (1, H, 1), (1, 1, W). Sizes are those of the output: another resolution is an error.
    """

    @checked
    def __init__(self, maps: Sequence[Tensor]) -> None:
        super().__init__()
        self.maps = nn.ParameterList([nn.Parameter(part.detach().clone()) for part in maps])

    def gamma(self) -> Tensor:
        """Return the whole scale, (O, H, W)."""
        gamma: Tensor = reduce(torch.mul, self.maps)
        return gamma

    def alpha_of(self, W: Tensor) -> Tensor:
        return self.gamma().flatten(1).mean(1)

    def forward(self, y: Tensor, W: Tensor) -> Tensor:
        gamma = self.gamma()
        if y.shape[-gamma.dim() :] != gamma.shape:
            raise InputError(
                "scale per position",
                expected=f"an output shaped {tuple(gamma.shape)}",
                found=str(tuple(y.shape[-gamma.dim() :])),
                fix="feed the resolution it was made for, or take scale='learned'",
            )
        return y * gamma.to(y.dtype)


# The scales of a layer by itself, from its first weight.
PER_CHANNEL: dict[str, Callable[[Tensor], Scale]] = {
    "none": lambda weight: NoScale(),
    "analytic": lambda weight: AnalyticScale(),
    "learned": lambda weight: LearnedScale(analytic_alpha(weight)),
}


def full_map(alpha: Tensor, size: Sequence[int]) -> list[Tensor]:
    """Return one free map (O, H, W), case 2 of XNOR-Net++."""
    return [alpha.view(-1, *(1,) * len(size)).expand(-1, *size)]


def channel_by_map(alpha: Tensor, size: Sequence[int]) -> list[Tensor]:
    """Return alpha (O, 1, 1) and beta (1, H, W), case 3 of XNOR-Net++."""
    return [alpha.view(-1, *(1,) * len(size)), alpha.new_ones(1, *size)]


def channel_by_axes(alpha: Tensor, size: Sequence[int]) -> list[Tensor]:
    """Return alpha (O, 1, 1), beta (1, H, 1) and gamma (1, 1, W), case 4 of XNOR-Net++."""
    axes = [[n if axis == k else 1 for k in range(len(size))] for axis, n in enumerate(size)]
    return [alpha.view(-1, *(1,) * len(size)), *(alpha.new_ones(1, *axis) for axis in axes)]


# The learned scales per position, which need the size of the layer's output.
MAPS = {
    "learned_map": full_map,
    "learned_channel_x_map": channel_by_map,
    "learned_channel_x_axes": channel_by_axes,
}


LEARNED = ("learned", *MAPS)
"""The scales that start at an alpha and learn it."""

_NAMES: dict[type, str] = {NoScale: "none", AnalyticScale: "analytic", LearnedScale: "learned"}

ScaleLike = str | type[Scale] | Callable[[Tensor], Scale]


def register_scale(name: str, build: Callable[[Tensor], Scale]) -> None:
    """Make a scale of one's own known by a name, as `Binarization(scale=name)` and `--scale name`.

    Parameters
    ----------
    build
        From the filters of a layer's first weight, (O, ...), to a `Scale`: a class, or a function.

    Raises
    ------
    InputError
        If the name is taken, or what `build` makes is no scale. A scale is one factor for each output
        channel, which is all that a file can hold.

    Example
    -------
    >>> bitfactor.nn.register_scale("largest", Largest)
    """
    expect_new_name("register_scale", name, [*PER_CHANNEL, *MAPS])
    _add(name, build)
    remember("scale", name, build)


def scale_name(value: ScaleLike, known: Collection[str]) -> str:
    """Return the name of a scale; a class, or a function that makes one, is registered under its own."""
    if isinstance(value, type) and value in _NAMES:
        return _NAMES[value]
    return name_of("scale", value, known, lambda name: _add(name, value))


def _add(name: str, build: Any) -> None:
    expect_sound(f"scale {name!r}", build, scale_faults(build))
    PER_CHANNEL[name] = build


def scale_faults(build: Callable[[Tensor], Scale]) -> Iterator[dict[str, str]]:
    """Yield what is wrong with the values and gradients of a scale, as an `InputError` has it."""
    draw = torch.Generator().manual_seed(0)
    W = torch.randn(6, 4, 3, 3, generator=draw).requires_grad_()
    if isinstance(build, nn.Module):
        fix = "pass its class, which makes one for each layer"
        yield {"expected": "what makes a Scale", "found": f"one {type(build).__name__}", "fix": fix}
        return
    scale: Any = build(W.detach())
    if not isinstance(scale, Scale):
        fix = "derive its class from bitfactor.nn.Scale"
        yield {"expected": "a Scale", "found": shown(scale), "fix": fix}
        return
    alpha, y = scale.alpha_of(W), torch.randn(2, 6, 5, 7, generator=draw)
    if alpha.shape != W.shape[:1] or not alpha.isfinite().all():
        found = str(tuple(alpha.shape)) if alpha.isfinite().all() else "NaN or infinity in it"
        yield {
            "expected": "a finite alpha of shape (6,)",
            "found": found,
            "fix": "return one for each filter",
        }
    elif not torch.allclose(scale(y, W), y * over_channels(alpha, W)):
        fix = "leave forward() to Scale, and define alpha_of()"
        yield {"expected": "y times alpha, as a file holds it", "found": "something else", "fix": fix}


CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def window_magnitude(
    x: Tensor, outputs: int, kernel: Sequence[int], *, groups: int, **geometry: Any
) -> Tensor:
    """Return XNOR-Net's K of a convolution with input x (N, C, ...), for each of its outputs (N, O, ...).

    K is the mean of abs(x) over the channels of a group and the window of each output; padding counts as 0.
    The paper leaves it out: "at a negligible drop in accuracy".
    """
    convolve, one = CONVOLUTIONS[len(kernel)], (1,) * len(kernel)
    channels = x.shape[-len(kernel) - 1] // groups
    mean = convolve(x.abs(), _filled(x, 1 / channels, groups, channels, *one), groups=groups)
    K = convolve(mean, _filled(x, 1 / prod(kernel), groups, 1, *kernel), groups=groups, **geometry)
    return convolve(K, _filled(x, 1, outputs, 1, *one), groups=groups)


def feature_magnitude(x: Tensor, outputs: int) -> Tensor:
    """Return XNOR-Net's K of a linear layer with input x (..., F), for each of its outputs: (..., O)."""
    features = x.shape[-1]
    return F.linear(F.linear(x.abs(), _filled(x, 1 / features, 1, features)), _filled(x, 1, outputs, 1))


def _filled(x: Tensor, value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, dtype=x.dtype, device=x.device)
