"""Figures, and the one-file pages that show them. Takes numbers, knows nothing of models or data sets.

Call it: `bitfactor.report("runs/a")`, see `bitfactor.api.report.report`.
"""

from bitfactor.report.figures import curves, gallery, histograms
from bitfactor.report.html import Page, Section
from bitfactor.room import callable_as

__all__ = ["Page", "Section", "curves", "gallery", "histograms"]

callable_as(__name__, "bitfactor.api.report")
