"""The machine's instruction sets for tests, and how many examples each draws."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy
from tests.cases import slow_beside

from bitfactor.runtime import instruction_sets

FEW = 10
# `make test-isa` forces one after the other and draws all examples of each.
FULL = instruction_sets() if os.environ.get("BITFACTOR_ISA") else (instruction_sets()[0], "scalar")
every_set = pytest.mark.parametrize("isa", instruction_sets())
# The others are slow cases, where large work is the same for each.
full_sets = pytest.mark.parametrize("isa", slow_beside(FULL, instruction_sets()))


def drawn(examples: int, /, **strategies: SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Draw as `given` does: `examples` for the best instruction set and for scalar code, a few for others."""

    def decorate(test):
        few, many = (settings(max_examples=most)(given(**strategies)(test)) for most in (FEW, examples))

        @wraps(many)
        def run(isa, **arguments):
            (many if isa in FULL else few)(isa=isa, **arguments)

        return run

    return decorate
