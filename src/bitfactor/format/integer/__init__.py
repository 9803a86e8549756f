"""A network in integers alone, from the first pixel to the class: precision `integer`.

The converter makes integers of a graph once; they, and no float, say what every machine computes.
"""

from bitfactor.format.integer.convert import integer_graph
from bitfactor.format.integer.graph import IntegerGraph, IntegerValue
from bitfactor.format.integer.program import in_integers, integers_of

__all__ = ["IntegerGraph", "IntegerValue", "in_integers", "integer_graph", "integers_of"]
