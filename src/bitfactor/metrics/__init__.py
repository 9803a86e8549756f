"""What is measured of a model in training."""

from bitfactor.metrics.flips import FlipRatio
from bitfactor.metrics.latents import (
    FactorStatistics,
    Histogram,
    LatentsDivergeError,
    LatentStatistics,
    alpha_histogram,
    factor_statistics,
    guard_latents,
    latent_statistics,
)

__all__ = [
    "FactorStatistics",
    "FlipRatio",
    "Histogram",
    "LatentStatistics",
    "LatentsDivergeError",
    "alpha_histogram",
    "factor_statistics",
    "guard_latents",
    "latent_statistics",
]
