"""Precision `integer` is the same bits on every target: the reference, all instruction sets, the C library,
WebAssembly with and without relaxed vectors, and C99.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.cases import SMALL, either, slow_beside
from tests.integers import of_input, of_output, run
from tests.native.test_c_api import LIBRARY, aligned
from tests.native.test_c_api import run as run_c
from tests.targets.c99.test_integers import as_model, drawn, outputs_of, written
from tests.targets.page.conftest import node as node

from bitfactor.format import load, save
from bitfactor.format.graph import run as run_reals
from bitfactor.format.integer import integers_of
from bitfactor.runtime import Session, instruction_sets
from bitfactor.runtime.runner import magnitudes_on
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.frozen import flat_program

SAMPLES = 3
NETWORKS = [*SMALL, *(f"drawn-{seed}" for seed in range(16))]
every_network = pytest.mark.parametrize("name", NETWORKS)


@cache
def network(name):
    """The model, its prepared inputs, these as the integers of C99, and the integers of its outputs."""
    draw = np.random.default_rng(0)
    if name.startswith("drawn"):
        seed = int(name.removeprefix("drawn-"))
        graph = drawn(seed)
        samples = draw.normal(size=(SAMPLES, *graph.input.shape)).astype(np.float32)
        model = as_model(graph, image=seed % 2 == 0)
        model = replace(
            model,
            golden_outputs=run_reals(graph, model.golden_input),
            ranges={} if model.input_spec else magnitudes_on(graph, samples),
        )
    else:
        model = load(file_of(name))
    shape, graph = (SAMPLES, *model.graph.input.shape), integers_of(model)
    if model.input_spec:
        pixels = draw.integers(0, 256, shape)
        mean, std = (np.array(part, "f")[:, None, None] for part in (graph.spec.mean, graph.spec.std))
        x, given = (pixels.astype("f") / 255 - mean) / std, pixels.astype(np.uint8)
    else:
        x = 1.5 * samples  # some values saturate
        given = of_input(graph, x).astype(np.int16)
    return model, x, given, run(graph, of_input(graph, x))


def expect_same(name, found):
    model, *_, expected = network(name)
    graph = integers_of(model)
    for i, (values, integers) in enumerate(zip(found, expected, strict=True)):
        values = np.array(values, np.float32).reshape(integers.shape)
        np.testing.assert_array_equal(values, of_output(graph, integers, i))


@every_network
def test_sessions(name, tmp_path):
    model, x, *_ = network(name)
    save(tmp_path / "net.safetensors", model)
    for isa in (*instruction_sets(), "reference"):
        for threads in (1,) if isa == "reference" else (1, 3):
            found = Session(tmp_path / "net.safetensors", threads, isa, "integer")(x)
            expect_same(name, found if isinstance(found, tuple) else [found])


@every_network
def test_c_library(name):
    model, x, *_ = network(name)
    content = flat_program(model, precision="integer").content
    assert content[8] == 2  # the version, which older libraries refuse
    memory = aligned(content)
    opened = LIBRARY.bf_load(memory.ctypes.data, len(memory), None)
    status, found = run_c(opened, np.ascontiguousarray(x))
    assert (status, LIBRARY.bf_verify(opened, None, None)) == (0, 0)
    LIBRARY.bf_free(opened)
    expect_same(name, found)


@pytest.mark.parametrize(("name", "relaxed"), either(NETWORKS))
def test_webassembly(name, relaxed, node, tmp_path):
    model, x, *_ = network(name)
    (tmp_path / "net.bfp").write_bytes(flat_program(model, precision="integer").content)
    found = node("run", file=str(tmp_path / "net.bfp"), x=x, relaxed=relaxed)["outputs"]
    expect_same(name, [np.concatenate(parts) for parts in zip(*found, strict=True)])


# The zoo and the first drawn ones are compiled in tests/targets/c99.
@pytest.mark.parametrize("name", slow_beside((f"drawn-{i}" for i in range(8, 16)), NETWORKS))
def test_c99(name, tmp_path):
    model, _, given, expected = network(name)
    written(model, tmp_path, "uint8_t" if model.input_spec else "int16_t")
    found = outputs_of(tmp_path, np.ascontiguousarray(given.transpose(0, 2, 3, 1)), "-O1")
    np.testing.assert_array_equal(found, expected[0].reshape(SAMPLES, -1))
