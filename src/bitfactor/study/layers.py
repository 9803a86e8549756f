"""The binary layers of a trained network, small enough to keep for each run of a study."""

from typing import Any

import torch
from torch import Tensor, nn

from bitfactor.metrics.flips import binary_layers
from bitfactor.nn import BinaryLayer

_REACH, _WEIGHT_BINS, _ALPHA_BINS = 3.0, 40, 20
_VALUES = 64  # of a spectrum that are kept


@torch.no_grad()
def describe_layers(model: nn.Module) -> dict[str, Any]:
    """Return what figures 2 and 3 of the paper show, for each binary layer, as plain types.

    alpha and weight are histograms: `edges`, one more than `counts`. That of the weight before its sign goes
    as far as the weights do, at most from -3 to 3, with the numbers of those `below` and `above`.
    `share_outside` is the fraction of them with |W| > 1, `std` their standard deviation. `spectra` holds
    the singular values of each factor, largest first, evenly thinned out where there are many; of a factor
    that several layers share, in the first.
    """
    seen: set[int] = set()
    return {name: _describe(layer, seen) for name, layer in binary_layers(model).items()}


def _describe(layer: BinaryLayer, seen: set[int]) -> dict[str, Any]:
    W: Tensor = layer.latent()
    reach = min(_REACH, float(W.abs().max()))
    factors = {name: f for name, f in layer.latent.matrices().items() if f.data_ptr() not in seen}
    seen |= {factor.data_ptr() for factor in factors.values()}
    return {
        "alpha": _histogram(layer.alpha().float(), _ALPHA_BINS),
        "weight": {
            **_histogram(W, _WEIGHT_BINS, (-reach, reach)),
            "below": int((-reach > W).sum()),
            "above": int((reach < W).sum()),
        },
        "share_outside": _short(float((W.abs() > 1).float().mean())),
        "std": _short(float(W.std(correction=0))),
        "spectra": {name: _spectrum(factor) for name, factor in factors.items()},
    }


def _histogram(values: Tensor, bins: int, reach: tuple[float, float] | None = None) -> dict[str, list[float]]:
    counts, edges = torch.histogram(values.cpu().flatten(), bins, range=reach)
    return {"edges": [_short(edge) for edge in edges.tolist()], "counts": [int(n) for n in counts]}


def _spectrum(factor: Tensor) -> list[float]:
    values: Tensor = torch.linalg.svdvals(factor.double())
    kept = torch.linspace(0, len(values) - 1, min(len(values), _VALUES)).round().long()
    return [_short(value) for value in values[kept].tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
