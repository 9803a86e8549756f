"""Which layers of a model turn binary, and turning them."""

from bitfactor.binarization.binarization import Binarization
from bitfactor.binarization.binarize import binarize_
from bitfactor.binarization.layers import PlannedLayer
from bitfactor.binarization.parameter_groups import parameter_groups
from bitfactor.binarization.plan import Plan
from bitfactor.binarization.summary import Summary, SummaryRow, summary

__all__ = [
    "Binarization",
    "Plan",
    "PlannedLayer",
    "Summary",
    "SummaryRow",
    "binarize_",
    "parameter_groups",
    "summary",
]
