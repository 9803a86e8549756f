"""What is done to a layer's filters before their sign is taken: centred, standardised, rotated."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.common.checks import expect_new_name, expect_sound, name_of, remember, shown

Transform = Callable[[Tensor], Tensor]
TransformLike = str | type[nn.Module] | Callable[[Tensor], Transform]


def centred(W: Tensor) -> Tensor:
    """Return filters (O, ...), each minus its mean, so that half its signs are likely +1 (IR-Net)."""
    return W - _of_filters(W.flatten(1).mean(1), W)


def standardised(W: Tensor) -> Tensor:
    """Return filters (O, ...) with mean 0 and deviation 1: weights of IR-Net (arXiv 1909.10788).

    A filter of equal weights, whose deviation is rounding, is centred alone.
    """
    V = centred(W)
    variance = V.flatten(1).square().sum(1) / max(V[0].numel() - 1, 1)
    rounding = _ROUNDING * W.detach().flatten(1).square().mean(1) + torch.finfo(W.dtype).tiny
    return V / _of_filters(torch.where(variance > rounding, variance, 1).sqrt(), W)


_ROUNDING = 1e-12  # of a filter's mean square


def periodic(W: Tensor) -> Tensor:
    """Return sin(20 W), whose sign BiPer takes (E. Vargas et al., CVPR 2024, arXiv 2404.01278)."""
    return torch.sin(20 * W)


class Clamped(nn.Module):
    """Standardised filters, clamped at a quantile of a Laplace distribution: ReCU (arXiv 2103.12369).

    V = 2 sqrt(2) `standardised`(W) is clamped to abs(V) <= -b log(2 - 2 tau), b the mean abs(V) of the layer.
    What lies farther out would hardly ever change its sign, and gets a gradient through the statistics alone.
    With `progress` tau rises from 0.85 to 0.99, a line in e^progress that `anneal_` sets, as in the authors'
    code, `z-hXu/ReCU`.
    """

    progress: Tensor
    first, last = 0.85, 0.99

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("progress", torch.zeros(()))

    def forward(self, W: Tensor) -> Tensor:
        V = 2 * math.sqrt(2) * standardised(W)
        tau = self.first + (self.last - self.first) * torch.expm1(self.progress) / math.expm1(1)
        bound = (-V.detach().abs().mean() * torch.log(2 - 2 * tau)).to(V.dtype)
        return torch.clamp(V, -bound, bound)


def _of_filters(values: Tensor, W: Tensor) -> Tensor:
    """Return a value for each filter, (O,), shaped to broadcast over the filters."""
    return values.view(-1, *(1,) * (W.dim() - 1))


# From the filters (O, ...) of a layer's first weight to a function, or a module, from filters to filters.
WEIGHT_TRANSFORMS: dict[str, Callable[[Tensor], Transform] | None] = {
    "none": None,
    "centred": lambda W: centred,
    "standardised": lambda W: standardised,
    "clamped": lambda W: Clamped(),
    "periodic": lambda W: periodic,
}


def register_weight_transform(name: str, build: Callable[[Tensor], Transform]) -> None:
    """Make a transform of weights known by a name, as `Binarization(weight_transform=name)`.

    It stands between a latent, whichever it is, and the sign. The analytic alpha is that of what it gives; a
    learned one starts from the filters before it. A file holds the signs alone, so it costs nothing there.

    Parameters
    ----------
    build
        From the filters of a layer's first weight, (O, ...), to a function or a module that takes filters to
        filters of the same shape. Parameters of a module are trained, a buffer `progress` of it is what
        `anneal_` sets.

    Raises
    ------
    InputError
        If the name is taken, or what `build` makes gives no finite filters with a gradient.

    Example
    -------
    >>> register_weight_transform("median", lambda W: lambda W: W - W.median())
    """
    expect_new_name("register_weight_transform", name, WEIGHT_TRANSFORMS)
    _add(name, build)
    remember("weight_transform", name, build)


def transform_name(value: TransformLike) -> str:
    """Return the name of a transform; a class, or a function that makes one, is registered under its own."""
    return name_of("weight_transform", value, WEIGHT_TRANSFORMS, lambda name: _add(name, value))


def _add(name: str, build: Any) -> None:
    expect_sound(f"weight_transform {name!r}", build, _faults(build))
    WEIGHT_TRANSFORMS[name] = build


def _faults(build: Callable[[Tensor], Transform]) -> Iterator[dict[str, str]]:
    for shape in ((8, 4, 3, 3), (8, 6)):
        W = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
        transform: Any = build(W.detach())
        if not callable(transform):
            fix = "let build(weight) return what is applied to it"
            yield {"expected": "a function or a module", "found": shown(transform), "fix": fix}
            return
        V: Any = transform(W)
        if not isinstance(V, Tensor) or V.shape != W.shape or not V.isfinite().all():
            found = f"one of shape {tuple(V.shape)}" if isinstance(V, Tensor) else shown(V)
            found = "NaN or infinity in it" if isinstance(V, Tensor) and V.shape == W.shape else found
            yield {"expected": f"a finite weight {shape}", "found": found, "fix": "return filters as given"}
        elif not V.requires_grad:
            yield {"expected": "a gradient to the weight", "found": "none", "fix": "do not detach it"}
        elif not torch.allclose(_restored(build, transform, W.detach()), V, equal_nan=True):
            fix = "keep what it takes from the first weight in a buffer of a module"
            yield {"expected": "what a saved state gives back", "found": "a value that is lost", "fix": fix}


def _restored(build: Callable[[Tensor], Transform], transform: Any, W: Tensor) -> Tensor:
    """Return what a transform of another first weight gives, with the state of this one."""
    other: Any = build(1 - 2 * W)
    if isinstance(transform, nn.Module) and isinstance(other, nn.Module):
        other.load_state_dict(transform.state_dict())
    found: Tensor = other(W)
    return found
