"""The machine's instruction sets for tests, and how many examples each draws."""

import os
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray
from tests.cases import slow_beside

from bitfactor.format import Graph
from bitfactor.format.graph import run
from bitfactor.runtime import instruction_sets
from bitfactor.runtime.runner import runner

FEW = 10
# `make test-isa` forces one after the other and draws all examples of each.
FULL = instruction_sets() if os.environ.get("BITFACTOR_ISA") else (instruction_sets()[0], "scalar")
every_set = pytest.mark.parametrize("isa", instruction_sets())
# The others are slow cases, where large work is the same for each.
full_sets = pytest.mark.parametrize("isa", slow_beside(FULL, instruction_sets()))


_KNOWN: OrderedDict[object, tuple[NDArray[Any], ...]] = OrderedDict()


def scalar(graph: Graph, x: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return what the set without instructions of its own gives."""
    return runner(graph, "scalar")(x)


def reference(graph: Graph, x: NDArray[Any], answer: Any = run) -> tuple[NDArray[Any], ...]:
    """Return what `answer` gives. The last 200 are kept, for the next instruction set asks the same."""
    nodes = [(node.op, node.inputs, repr(node.attributes)) for node in graph.nodes]
    tensors = [(t.shape, t.tobytes()) for node in graph.nodes for t in node.tensors.values()]
    key = (answer, *nodes, *tensors, graph.outputs, x.shape, x.tobytes())
    if key not in _KNOWN:
        _KNOWN[key] = answer(graph, x)
        if len(_KNOWN) > 200:
            _KNOWN.popitem(last=False)
    return _KNOWN[key]


def drawn(examples: int, /, **strategies: SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Draw `examples` for the best instruction set and for scalar code; the others take the first few.

    They are drawn once for all cases of a test. Where one fails, Hypothesis draws again and makes it small.
    """

    def decorate(test):
        searched = settings(max_examples=examples)(given(**strategies)(test))
        found: list[dict[str, Any]] = []

        @settings(max_examples=examples, phases=[Phase.generate])
        @given(st.fixed_dictionaries(strategies))
        def draw(values):
            found.append(values)

        @wraps(searched)
        def run(isa, **arguments):
            if not found:
                draw()
            try:
                for values in found if isa in FULL else found[:FEW]:
                    test(isa=isa, **arguments, **values)
            except Exception:
                searched(isa=isa, **arguments)
                raise

        return run

    return decorate
