"""Metrics of a model in training.

Those over torchmetrics are imported when they are first asked for, as that takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitfactor.training.metrics.latents import (
    FactorStatistics,
    FlipRatio,
    Histogram,
    LatentsDivergeError,
    LatentStatistics,
    Moved,
    Movement,
    alpha_histogram,
    factor_statistics,
    guard_latents,
    latent_statistics,
)

if TYPE_CHECKING:
    from bitfactor.training.metrics.scores import PCK, KeypointMetric, PCKh, Peak, TopAccuracy

_LATE = {
    "TopAccuracy": "scores",
    "PCK": "scores",
    "KeypointMetric": "scores",
    "PCKh": "scores",
    "Peak": "scores",
}

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
    "Peak",
    "TopAccuracy",
    "alpha_histogram",
    "factor_statistics",
    "guard_latents",
    "latent_statistics",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"bitfactor.training.metrics.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
