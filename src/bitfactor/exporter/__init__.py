"""From a traced torch model to a checked graph in one file."""

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
