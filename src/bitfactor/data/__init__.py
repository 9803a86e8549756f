"""Data sets, each in its file."""

from bitfactor.data.digits import Digits

__all__ = ["Digits"]
