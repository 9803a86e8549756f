"""Metrics of a model in training."""

from bitfactor.metrics.latents import (
    FactorStatistics,
    FlipRatio,
    Histogram,
    LatentsDivergeError,
    LatentStatistics,
    alpha_histogram,
    factor_statistics,
    guard_latents,
    latent_statistics,
)
from bitfactor.metrics.movement import Moved, Movement
from bitfactor.metrics.pck import PCK, KeypointMetric, PCKh

__all__ = [
    "PCK",
    "FactorStatistics",
    "FlipRatio",
    "Histogram",
    "KeypointMetric",
    "LatentStatistics",
    "LatentsDivergeError",
    "Moved",
    "Movement",
    "PCKh",
    "alpha_histogram",
    "factor_statistics",
    "guard_latents",
    "latent_statistics",
]
