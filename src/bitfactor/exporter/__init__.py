"""From a trained torch model to one file of signs, checked against torch before it is written."""

from bitfactor.exporter.export import export
from bitfactor.exporter.obstacles import Obstacle, UnsupportedError
from bitfactor.exporter.report import ExportReport, LayerReport
from bitfactor.exporter.split import Split, SplitReport
from bitfactor.format.quantise import Real

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
