"""What is kept of the binary layers of a trained network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitfactor.nn import BinaryLayer
from bitfactor.training.metrics.latents import binary_layers

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

    `alpha` and `weight` are histograms, of the scale and of the weight before its sign: that goes as far as
    the weights do, at most from -3 to 3. `outside` is the fraction of weights with |W| > 1, `std` their
    standard deviation. `spectra` holds the singular values of each factor, largest first, evenly thinned out
    where there are many; those of a factor that several layers share stand with the first.
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
    alpha = layer.alpha().float()
    reach = min(_REACH, float(W.abs().max()))
    factors = {name: f for name, f in layer.latent.matrices().items() if f.data_ptr() not in seen}
    seen |= {factor.data_ptr() for factor in factors.values()}
    return LayerRecord(
        alpha=_histogram(alpha, _ALPHA_BINS),
        weight=_histogram(W, _WEIGHT_BINS, reach),
        std=_short(float(W.std(correction=0))),
        outside=_short(float((W.abs() > 1).float().mean())),
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
