"""From a trained torch model to one file of signs, checked against torch before it is written."""

from bitfactor.exporter.export import export
from bitfactor.exporter.report import ExportReport, LayerReport, Obstacle, UnsupportedError
from bitfactor.exporter.split import Split, SplitReport
from bitfactor.format.low_precision import Real

__all__ = [
    "ExportReport",
    "LayerReport",
    "Obstacle",
    "Real",
    "Split",
    "SplitReport",
    "UnsupportedError",
    "export",
]
