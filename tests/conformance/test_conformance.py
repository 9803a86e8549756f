"""Every target runs the networks of networks.py alike: the sets of this machine, WebAssembly, C99.

NEON is run by `make test-neon`.
"""

import numpy as np
import pytest
from tests.cases import either
from tests.conformance.networks import DRAWN, networks
from tests.targets.c99.conftest import compiled as compiled
from tests.targets.page.conftest import node as node

import bitfactor
from bitfactor.format import save
from bitfactor.format.model import golden_input
from bitfactor.runtime import Session, instruction_sets

NETWORKS = dict(networks())
every_network = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture
def path(name, tmp_path):
    save(tmp_path / "net.safetensors", NETWORKS[name])
    return tmp_path / "net.safetensors"


def expect_golden(found, name):
    """Signs and sums are the same bits; so is all of a drawn network."""
    model = NETWORKS[name]
    for values, output, expected in zip(found, model.graph.outputs, model.golden_outputs, strict=True):
        values = np.array(values, np.float32).reshape(expected.shape)
        real = model.graph.values[output].dtype == "float32"
        if real and not name.startswith("drawn"):
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        else:
            np.testing.assert_array_equal(values, expected)


def as_list(outputs):
    return [outputs] if isinstance(outputs, np.ndarray) else [*outputs]


def test_there_are_drawn_networks():
    assert len(NETWORKS) > len(DRAWN) >= 10


@every_network
@pytest.mark.parametrize("isa", instruction_sets())
def test_instruction_sets(name, path, isa):
    session = Session(path, isa=isa, threads=1)
    found = as_list(session(golden_input(session.input_shape)))
    for values, expected in zip(found, NETWORKS[name].golden_outputs, strict=True):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(("name", "relaxed"), either(NETWORKS))
def test_webassembly(name, path, relaxed, node, tmp_path):
    bitfactor.freeze(path, tmp_path / "net.bfp")
    x = golden_input(NETWORKS[name].graph.input.shape)
    found = node("run", file=str(tmp_path / "net.bfp"), x=x, relaxed=relaxed)
    expect_golden(found["outputs"][0], name)


@every_network
def test_c99(name, compiled):
    model = NETWORKS[name]
    expect_golden(as_list(compiled(model)(golden_input(model.graph.input.shape))), name)
