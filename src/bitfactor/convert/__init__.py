"""Conversion of any torch model, the plan of it, and the summary of a model."""

from bitfactor.convert.binarization import Binarization
from bitfactor.convert.binarize import binarize_
from bitfactor.convert.groups import group_by_shape
from bitfactor.convert.layers import PlannedLayer
from bitfactor.convert.parameter_groups import parameter_groups
from bitfactor.convert.plan import Plan
from bitfactor.convert.summary import Summary, SummaryRow, summary

__all__ = [
    "Binarization",
    "Plan",
    "PlannedLayer",
    "Summary",
    "SummaryRow",
    "binarize_",
    "group_by_shape",
    "parameter_groups",
    "summary",
]
