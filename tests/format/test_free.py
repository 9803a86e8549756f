"""What of a file follows from the sizes of its inputs."""

import json

import numpy as np

from bitfactor.format.signature import FreeSizes, Length, _filled, _flat

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
FREE = FreeSizes(
    ((0, 1, 4), (0, 2, 1)),
    {"a": {"shape": (Length((("x", 1), ("x", 2)), 1, 4), None), "weight": (None, Length((("x", 2),)))}},
    {"a": {"weight": TABLE}},
)


def test_a_length_is_computed_from_those_of_values() -> None:
    shapes = {"x": (3, 8, 6), "y": (5,)}
    assert Length((("x", 1),), factor=2, offset=-1).at(shapes) == 15
    assert Length((("x", 1), ("x", 2)), divisor=4).at(shapes) == 12


def test_it_is_restored_from_json() -> None:
    described = json.loads(json.dumps(FREE.described()))
    assert FreeSizes.restored(described, FREE.tensors) == FREE


def test_what_it_allows_and_how_it_says_so() -> None:
    own = (3, 8, 6)
    assert FREE.shown(0, own) == "(N, 3, 8 + 4 k, any)"
    assert all(FREE.allows(0, own, shape) for shape in (own, (3, 4, 1), (3, 16, 7)))
    assert not any(
        FREE.allows(0, own, shape) for shape in ((4, 8, 6), (3, 6, 6), (3, 0, 6), (3, 8), (3, 8, 0))
    )
    assert FREE.shown(1, own) == "(N, 3, 8, 6)"


def test_attributes_may_be_nested() -> None:
    value = ((1, 2), (3, ()), "name", 4)
    leaves = _flat(value)
    assert leaves == [1, 2, 3, "name", 4]
    assert _filled(value, iter(leaves)) == value
