"""Networks as C on an emulated Cortex-M give the classes of the runtime: what `make test-cortex-m` runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.native import board

from bitfactor.format import load
from bitfactor.format.integer import integer_graph, run
from bitfactor.pose.images import normalise
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import export_c

GOLDEN = Path(__file__).parents[1] / "format" / "golden" / "version1.safetensors"
every_core = pytest.mark.parametrize("core", board.CORES)


@every_core
@pytest.mark.parametrize(("name", "images"), [("digits", 20), ("cifar10-resnet18", 4)])
def test_a_network_of_the_zoo(name, images, core, tmp_path):
    session = Session(file_of(name), threads=1)
    spec = session.model.input_spec
    shape = (images, *spec.size, len(spec.mean))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    report = export_c(session.model, tmp_path / "net.c")
    ran = board.run(Path(report.source), report.prefix, pixels, core)
    expected = session(np.stack([normalise(one.squeeze(), spec) for one in pixels]))
    np.testing.assert_array_equal(ran.outputs.argmax(1), expected.argmax(1))
    np.testing.assert_allclose(ran.outputs, expected, atol=1e-4)
    assert report.constant_bytes < ran.flash < report.constant_bytes + 16_384
    assert report.arena_bytes <= ran.ram < report.arena_bytes + 1024


@every_core
def test_every_operation(core, tmp_path):
    model = load(GOLDEN)
    model = replace(model, graph=replace(model.graph, outputs=model.graph.outputs[:1]))
    report = export_c(model, tmp_path / "net.c")
    ran = board.run(Path(report.source), report.prefix, model.golden_input, core)
    np.testing.assert_allclose(ran.outputs, model.golden_outputs[0], rtol=1e-5, atol=1e-6)


@every_core
@pytest.mark.parametrize("name", ["digits", "cifar10-resnet18"])
def test_integers_are_the_references_bits(name, core, tmp_path):
    model = load(file_of(name))
    graph = integer_graph(model.graph, model.input_spec)
    shape = (2, *model.input_spec.size, len(model.input_spec.mean))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    report = export_c(model, tmp_path / "net.c", precision="integer")
    ran = board.run(Path(report.source), report.prefix, pixels, core, output=np.int32, optimise="-O3")
    (expected,) = run(graph, pixels.transpose(0, 3, 1, 2).astype(np.int64) - 128)
    np.testing.assert_array_equal(ran.outputs, expected)
