"""From a model file to C99 for microcontrollers: one source and one header, without torch."""

from bitfactor.targets.c99.write import CReport, export_c

__all__ = ["CReport", "export_c"]
