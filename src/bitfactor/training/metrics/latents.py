"""What latent weights, factors and scales look like, how many signs flip, and a guard against divergence.

Also what one step of the optimizer does to each layer's weight, whatever its latent, and what a training step
keeps of the binary layers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from bitfactor.common.checks import checked, expect_that
from bitfactor.nn import BinaryLayer, binary_layers


class FlipRatio:
    """Fraction of each layer's weights whose sign differs from the call before.

    It holds one byte per weight.

    Example
    -------
    >>> flips = FlipRatio(model)
    >>> optimizer.step()
    >>> flips()["layer1.0.conv1"]
    0.0074
    """

    @checked
    def __init__(self, model: nn.Module) -> None:
        self._layers = binary_layers(model)
        self._signs = self._read()

    def __call__(self) -> dict[str, float]:
        """Return layer -> fraction of flipped signs since the last call, or since construction."""
        found, self._signs = self.so_far(), self._read()
        return found

    def so_far(self) -> dict[str, float]:
        """Return the same, and let the next call count from where this one does."""
        now = self._read()
        return {name: float((signs != now[name]).float().mean()) for name, signs in self._signs.items()}

    def of_all(self) -> float:
        """Return the fraction of all weights of the network, as `so_far` counts; 0 of a real network."""
        now = self._read()
        flipped = sum(int((signs != now[name]).sum()) for name, signs in self._signs.items())
        return flipped / max(1, sum(signs.numel() for signs in now.values()))

    def state(self) -> dict[str, Tensor]:
        """Return the signs that it compares with, a bit for each, for a checkpoint."""
        return {
            name: torch.from_numpy(np.packbits(signs.cpu().numpy())) for name, signs in self._signs.items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        for name, now in self._signs.items():
            bits = np.unpackbits(state[name].numpy(), count=now.numel()).astype(bool)
            self._signs[name] = torch.from_numpy(bits).view(now.shape).to(now.device)

    @torch.no_grad()
    def _read(self) -> dict[str, Tensor]:
        return {name: layer.real_filters() > 0 for name, layer in self._layers.items()}


@dataclass(frozen=True)
class LatentStatistics:
    """Of one layer's latent weight: its std, and the fraction of it outside [-1, 1], where a mask is 0."""

    std: float
    outside: float

    @classmethod
    def of(cls, W: Tensor) -> "LatentStatistics":
        """Return those of a weight."""
        return cls(float(W.std(correction=0)), float((W.abs() > 1).float().mean()))


@checked
@torch.no_grad()
def latent_statistics(model: nn.Module) -> dict[str, LatentStatistics]:
    """Return the statistics of every binary layer, by name.

    Example
    -------
    >>> latent_statistics(model)["layer1.0.conv1"].std
    0.058
    """
    return {name: LatentStatistics.of(layer.latent()) for name, layer in binary_layers(model).items()}


@dataclass(frozen=True)
class FactorStatistics:
    """Of one factor. Effective rank is exp of the entropy of its normalised singular values, between 1 and
    the full rank. Condition number is largest over smallest singular value.
    """

    effective_rank: float
    condition: float


@checked
@torch.no_grad()
def factor_statistics(model: nn.Module) -> dict[str, FactorStatistics]:
    """Return the statistics of every factor, by layer and name; one that layers share counts for each."""
    factors = {
        f"{name}.{factor}": matrix
        for name, layer in binary_layers(model).items()
        for factor, matrix in layer.latent.matrices().items()
    }
    return {name: _factor_statistics(name, matrix) for name, matrix in factors.items()}


def _factor_statistics(name: str, factor: Tensor) -> FactorStatistics:
    finite, fix = bool(factor.isfinite().all()), "train again with a lower learning rate"
    expect_that(finite, name, expected="finite values", found="NaN or infinity", fix=fix)
    values: Tensor = torch.linalg.svdvals(factor.double())
    fraction = values / values.sum()
    entropy = -torch.xlogy(fraction, fraction).sum()
    return FactorStatistics(float(entropy.exp()), float(values[0] / values[-1]))


def _exploded(model: nn.Module) -> list[str]:
    return [
        f"layer {name}: expected latent weights with a std of at most {_EXPLODED:g}, "
        f"found {found.std:.3g}; take weight_estimator 'clipped' or 'rms', or a lower learning rate"
        for name, found in latent_statistics(model).items()
        if not found.std <= _EXPLODED
    ]


def troubles(model: nn.Module, flipped: float, first: bool) -> list[str]:
    """Return what is wrong after a step in which the fraction `flipped` of the signs changed.

    That is layers whose latents explode, layers that learn nothing, and a step that draws the signs anew.
    The `first` step gives no gradient to what stands before a scale or factors that start at zero.
    """
    found = _exploded(model)
    if not first:
        found += [f"layer {name}: all its gradients are zero" for name in _without_gradient(model)]
    if flipped > _DRAWN_ANEW:
        found.append(
            f"{flipped:.0%} of the binary weights changed sign, and 50% would if they were drawn anew: "
            "lower --learning-rate"
        )
    return found


_EXPLODED = 100.0  # standard deviations of latents, which start below 1
_DRAWN_ANEW = 0.4


def _without_gradient(model: nn.Module) -> list[str]:
    learning: dict[str, bool] = {}
    binary = tuple(binary_layers(model))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = next((one for one in binary if name.startswith(f"{one}.")), name.rpartition(".")[0])
            some = parameter.grad is not None and bool(parameter.grad.any())
            learning[layer] = learning.get(layer, False) or some
    return [layer for layer, some in learning.items() if not some]


@dataclass(frozen=True)
class Moved:
    """What a step did to a layer's weight W."""

    flipped: float
    """Fraction of its signs that changed."""
    change: float
    """Root mean square of W's change, over the learning rate. Adam moves a free weight by 1 or less. It
    moves an entry of core x factors by at most 1 and the sum of the factors' ranks."""
    descent: float
    """Cosine of the angle between W's change and minus the gradient in W: 1 is steepest descent, 0 if there
    is no gradient."""
    gradient: float
    """Root mean square of the loss's gradient in W, as it comes through the sign."""
    spread: float
    """Standard deviation of W."""
    outside: float
    """Fraction of W outside [-1, 1], where the clipped estimator passes no gradient on."""
    condition: float
    """Largest over smallest singular value, of the factor where it is largest; 1 without factors."""


class Movement:
    """Watches the gradient in W of every binary layer until the one step that it is given.

    Where gradients are accumulated over parts of a batch, it is their sum; of several processes, this one's.

    Example
    -------
    >>> movement = Movement(model)
    >>> loss(model(inputs), target).backward()
    >>> movement(optimizer.step, learning_rate=1e-3)["layer1.0.conv1"].change
    0.62
    """

    @checked
    def __init__(self, model: nn.Module) -> None:
        self._model, self._layers = model, binary_layers(model)
        self._watched: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._hooks = [
            layer.latent.register_forward_hook(partial(self._watch, name))
            for name, layer in self._layers.items()
        ]

    def _watch(self, name: str, latent: nn.Module, inputs: object, weight: Tensor) -> None:
        # A held one comes again, of `once_for_all` as a leaf that gathers the gradients of several passes.
        if weight.requires_grad and self._watched.get(name) is not weight:
            self._watched[name] = weight
            weight.register_hook(partial(self._add, name))  # type: ignore[no-untyped-call]

    def _add(self, name: str, gradient: Tensor) -> None:
        before = self._gradients.get(name)
        self._gradients[name] = gradient.detach().clone() if before is None else before + gradient

    def __call__(self, update: Callable[[], None], learning_rate: float) -> dict[str, Moved]:
        """Call `update`, which changes the parameters, and return what that did to each layer."""
        for hook in self._hooks:
            hook.remove()
        before, flips = self._weights(), FlipRatio(self._model)
        update()
        after, factors, found, flipped = self._weights(), factor_statistics(self._model), {}, flips()
        for name, old in before.items():
            change = after[name] - old
            gradient = self._gradients.get(name, torch.zeros_like(change))
            own, matrices = LatentStatistics.of(after[name]), self._layers[name].latent.matrices()
            found[name] = Moved(
                flipped=flipped[name],
                change=_rms(change) / learning_rate if learning_rate else 0.0,
                descent=_cosine(change, -gradient),
                gradient=_rms(gradient),
                spread=own.std,
                outside=own.outside,
                condition=max((factors[f"{name}.{one}"].condition for one in matrices), default=1.0),
            )
        return found

    @torch.no_grad()
    def _weights(self) -> dict[str, Tensor]:
        return {name: layer.latent().detach().clone() for name, layer in self._layers.items()}


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _cosine(a: Tensor, b: Tensor) -> float:
    lengths = float(a.norm() * b.norm())
    return float((a * b).sum()) / lengths if lengths else 0.0


_REACH, _WEIGHT_BINS, _ALPHA_BINS = 3.0, 40, 20
_VALUES = 64  # of a spectrum that are kept


@dataclass(frozen=True)
class Histogram:
    """Counts of values between edges, one more than counts, and of those below and above."""

    edges: Sequence[float]
    counts: Sequence[int]
    below: int = 0
    above: int = 0


@dataclass(frozen=True)
class LayerRecord:
    """A binary layer after training, as figures 2 and 3 of the paper show it.

    `alpha` and `weight` are histograms, of the scale and of the weight before its sign. That goes as far as
    the weights do, at most from -3 to 3. `outside` is the fraction of weights with |W| > 1, `std` their
    standard deviation. `spectra` holds the singular values of each factor, largest first, evenly thinned out
    where there are many. Those of a factor that several layers share stand with the first.
    """

    alpha: Histogram
    weight: Histogram
    std: float
    outside: float
    spectra: Mapping[str, Sequence[float]]
    negative: float | None = None
    """Fraction of alpha below 0."""
    magnitude: float | None = None
    """Mean of abs(alpha)."""
    analytic: float | None = None
    """Mean of abs(W): what alpha would be, were it analytic."""


@torch.no_grad()
def describe_layers(model: nn.Module) -> dict[str, LayerRecord]:
    """Return each binary layer by its name."""
    seen: set[int] = set()
    return {name: _describe(layer, seen) for name, layer in binary_layers(model).items()}


def _describe(layer: BinaryLayer, seen: set[int]) -> LayerRecord:
    W: Tensor = layer.latent()
    own, alpha = LatentStatistics.of(W), layer.alpha().float()
    reach = min(_REACH, float(W.abs().max()))
    factors = {name: f for name, f in layer.latent.matrices().items() if f.data_ptr() not in seen}
    seen |= {factor.data_ptr() for factor in factors.values()}
    return LayerRecord(
        alpha=_histogram(alpha, _ALPHA_BINS),
        weight=_histogram(W, _WEIGHT_BINS, reach),
        std=_short(own.std),
        outside=_short(own.outside),
        spectra={name: _spectrum(factor) for name, factor in factors.items()},
        negative=_short(float((alpha < 0).float().mean())),
        magnitude=_short(float(alpha.abs().mean())),
        analytic=_short(float(W.abs().mean())),
    )


def _histogram(values: Tensor, bins: int, reach: float | None = None) -> Histogram:
    within = None if reach is None else (-reach, reach)
    counts, edges = torch.histogram(values.cpu().flatten(), bins, range=within)
    return Histogram(
        [_short(edge) for edge in edges.tolist()],
        [int(n) for n in counts],
        0 if reach is None else int((-reach > values).sum()),
        0 if reach is None else int((reach < values).sum()),
    )


def _spectrum(factor: Tensor) -> list[float]:
    values: Tensor = torch.linalg.svdvals(factor.double())
    kept = torch.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().long()
    return [_short(value) for value in values[kept].tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
