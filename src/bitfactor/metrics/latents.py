"""What latent weights, factors and scales look like, how many signs flip, and a guard against divergence."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bitfactor.checks import checked
from bitfactor.errors import InputError
from bitfactor.nn import BinaryLayer


def binary_layers(model: nn.Module) -> dict[str, BinaryLayer]:
    """Return the binary layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BinaryLayer)}


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
        before, self._signs = self._signs, self._read()
        return {name: float((signs != before[name]).float().mean()) for name, signs in self._signs.items()}

    @torch.no_grad()
    def _read(self) -> dict[str, Tensor]:
        return {name: layer.latent() > 0 for name, layer in self._layers.items()}


@dataclass(frozen=True)
class LatentStatistics:
    """Of one layer's latent weight: its std, and the fraction of it outside [-1, 1], where a mask is 0."""

    std: float
    outside: float


@checked
@torch.no_grad()
def latent_statistics(model: nn.Module) -> dict[str, LatentStatistics]:
    """Return the statistics of every binary layer, by name.

    Example
    -------
    >>> latent_statistics(model)["layer1.0.conv1"].std
    0.058
    """
    latents = {name: layer.latent() for name, layer in binary_layers(model).items()}
    return {
        name: LatentStatistics(float(W.std(correction=0)), float((W.abs() > 1).float().mean()))
        for name, W in latents.items()
    }


@dataclass(frozen=True)
class Histogram:
    """Counts of values between edges; edges is one longer than counts."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@checked
@torch.no_grad()
def alpha_histogram(model: nn.Module, bins: int = 20) -> dict[str, Histogram]:
    """Return the histogram of alpha of every binary layer (figure 2 of the paper).

    Raises
    ------
    InputError
        If there are fewer bins than one, or an alpha is NaN or infinite.
    """
    if bins < 1:
        raise InputError("bins", expected="1 or more", found=str(bins), fix="choose how many")
    return {
        name: _histogram(_finite(layer.alpha().float().cpu(), f"alpha of {name}"), bins)
        for name, layer in binary_layers(model).items()
    }


def _histogram(values: Tensor, bins: int) -> Histogram:
    counts, edges = torch.histogram(values, bins)
    return Histogram(tuple(edges.tolist()), tuple(int(count) for count in counts))


@dataclass(frozen=True)
class FactorStatistics:
    """Of one factor: effective rank, exp of the entropy of its normalised singular values, between 1 and the
    full rank; condition number, largest over smallest singular value.
    """

    effective_rank: float
    condition: float


@checked
@torch.no_grad()
def factor_statistics(model: nn.Module) -> dict[str, FactorStatistics]:
    """Return the statistics of every factor, by layer and name; one that layers share counts for each.

    Raises
    ------
    InputError
        If a factor holds NaN or infinity.
    """
    factors = {
        f"{name}.{factor}": matrix
        for name, layer in binary_layers(model).items()
        for factor, matrix in layer.latent.matrices().items()
    }
    return {name: _factor_statistics(_finite(matrix, name)) for name, matrix in factors.items()}


def _finite(values: Tensor, name: str) -> Tensor:
    if not values.isfinite().all():
        raise InputError(
            name,
            expected="finite values",
            found="NaN or infinity",
            fix="train again with a lower learning rate",
        )
    return values


def _factor_statistics(factor: Tensor) -> FactorStatistics:
    values: Tensor = torch.linalg.svdvals(factor.double())
    fraction = values / values.sum()
    entropy = -torch.xlogy(fraction, fraction).sum()
    return FactorStatistics(float(entropy.exp()), float(values[0] / values[-1]))


class LatentsDivergeError(RuntimeError):
    """Latent weights grew beyond what training recovers from."""


@checked
def guard_latents(model: nn.Module, limit: float = 100.0) -> None:
    """Stop training whose latents diverge: sign(W) is free of scale, so nothing else shows it.

    Raises
    ------
    InputError
        If the limit is not above 0.
    LatentsDivergeError
        If the std of a layer's latent weight is above `limit`, or not a number.

    Example
    -------
    >>> guard_latents(model)  # once per epoch
    """
    if limit <= 0:
        raise InputError("limit", expected="above 0", found=str(limit), fix="choose a larger one")
    for name, found in latent_statistics(model).items():
        if not found.std <= limit:
            raise LatentsDivergeError(
                f"layer {name}: expected latent weights with a std of at most {limit:g}, "
                f"found {found.std:.3g}; take weight_estimator 'clipped' or 'rms', or a lower learning rate"
            )
