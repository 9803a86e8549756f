"""From a model file to C99 for microcontrollers: one source and one header, without torch."""

from bitfactor.targets.c99.board import CoreName
from bitfactor.targets.c99.write import CPrecision, CReport, export_c

__all__ = ["CPrecision", "CReport", "CoreName", "export_c"]
