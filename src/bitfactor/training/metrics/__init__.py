"""Metrics of a model in training.

Those over torchmetrics are imported when they are first asked for, as that takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitfactor.training.metrics.latents import FactorStatistics as FactorStatistics
from bitfactor.training.metrics.latents import FlipRatio as FlipRatio
from bitfactor.training.metrics.latents import LatentStatistics as LatentStatistics
from bitfactor.training.metrics.latents import Moved as Moved
from bitfactor.training.metrics.latents import Movement as Movement
from bitfactor.training.metrics.latents import factor_statistics as factor_statistics
from bitfactor.training.metrics.latents import latent_statistics as latent_statistics

if TYPE_CHECKING:
    from bitfactor.training.metrics.scores import PCK as PCK
    from bitfactor.training.metrics.scores import KeypointMetric as KeypointMetric
    from bitfactor.training.metrics.scores import PCKh as PCKh
    from bitfactor.training.metrics.scores import Peak as Peak
    from bitfactor.training.metrics.scores import TopAccuracy as TopAccuracy


def __getattr__(name: str) -> Any:
    if name in ("PCK", "KeypointMetric", "PCKh", "Peak", "TopAccuracy"):
        return getattr(import_module("bitfactor.training.metrics.scores"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
