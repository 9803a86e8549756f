"""A file and an image in, an answer out, with numpy and the compiled core alone."""

from bitfactor.common.machine import instruction_sets
from bitfactor.runtime.program import LayerTime, Profile
from bitfactor.runtime.runner import Precision
from bitfactor.runtime.session import Session

__all__ = ["LayerTime", "Precision", "Profile", "Session", "instruction_sets"]
