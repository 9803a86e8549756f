"""Figures, and the one-file pages that show them. Takes numbers, knows nothing of models or data sets."""

from bitfactor.report.figures import curves, gallery, histograms
from bitfactor.report.html import Page, Section

__all__ = ["Page", "Section", "curves", "gallery", "histograms"]
