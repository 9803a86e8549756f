"""Data sets, each in its file."""

from bitfactor.data.dataset import Batch, DataSet, Target
from bitfactor.data.digits import Digits

__all__ = ["Batch", "DataSet", "Digits", "Target"]
