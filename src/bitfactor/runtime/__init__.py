"""Runs exported networks on a CPU, with numpy and the compiled core alone."""

from bitfactor.runtime.profile import LayerTime, Profile
from bitfactor.runtime.session import Precision, Session, instruction_sets

__all__ = ["LayerTime", "Precision", "Profile", "Session", "instruction_sets"]
