"""What of a file follows from the sizes of its inputs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import load
from bitfactor.format.signature import FreeSizes, Length, Signature, _filled, _flat
from bitfactor.runtime.zoo import file_of

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


@pytest.mark.parametrize(
    ("axes", "lengths"),
    [
        ([[1, 1, 1]], {}),
        ([[0, 3, 1]], {}),
        ([[0, 1, 0]], {}),
        ([[0, 1, 1]], {"nobody": {"shape": [None]}}),
        ([[0, 1, 1]], {"conv1": {"stride": [[[["nobody", 1]], 1, 1, 0], None]}}),
        ([[0, 1, 1]], {"conv1": {"stride": [[[["input", 3]], 1, 1, 0], None]}}),
        ([[0, 1, 1]], {"conv1": {"stride": [[[["input", 1]], 1, 0, 0], None]}}),
        ([[0, 1, 1]], {"conv1": {"stride": [None]}}),
        ([[0, 1, 1]], {"conv1": {"weight": [None] * 4}}),
    ],
)
def test_sizes_of_another_graph_are_refused(axes, lengths) -> None:
    model = load(file_of("digits"))
    assert {"conv1", "input"} <= model.graph.values.keys()
    with pytest.raises(InputError, match="free sizes"):
        replace(model, free=FreeSizes.restored({"axes": axes, "lengths": lengths}, {}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": ["float32", "bool"]},
        {"outputs": 1},
        {"outputs": {"tuple": [0, -1]}},
        {"outputs": "logits"},
        {"returned": ["int64", "int64"]},
        {"scalar_inputs": [0]},
        {"scalar_outputs": [2]},
    ],
)
def test_a_signature_of_another_graph_is_refused(wrong) -> None:
    described = {"types": ["float32"], "outputs": 0} | wrong
    with pytest.raises(InputError, match="signature: expected one of 1 inputs and 1 outputs"):
        replace(load(file_of("digits")), signature=Signature.restored(described))
