"""Networks as C on an emulated Cortex-M give the classes of the runtime: what `make test-cortex-m` runs."""

import shutil
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cases import SMALL, slow_beside
from tests.integers import run
from tests.targets.c99.test_integers import drawn_case
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.image_spec import InputSpec
from bitfactor.exporter import export
from bitfactor.format import load
from bitfactor.format.integer import integer_graph
from bitfactor.models import irnet_resnet20
from bitfactor.pose.images import normalise, resized
from bitfactor.runtime import Session
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import board, export_c

GOLDEN = Path(__file__).parents[1] / "format" / "golden" / "version1.safetensors"
MILLIONS = {"cortex-m0plus": 14.04, "cortex-m3": 9.95, "cortex-m4": 9.97, "rv32imc": 12.84}
IMAGES = {"digits": 20, "cifar10-resnet18": 4, "cifar10-resnet20": 1}
every_core = pytest.mark.parametrize("core", board.CORES)


def on_a_core(what, names):
    """Pair each with a core in turn, and with the others as slow cases."""
    return pytest.mark.parametrize(
        (what, "core"), slow_beside(zip(names, cycle(board.CORES), strict=False), product(names, board.CORES))
    )


@on_a_core("name", IMAGES)
def test_a_network_of_the_zoo(name, core, tmp_path):
    session = Session(file_of(name), threads=1)
    spec = session.model.input_spec
    shape = (IMAGES[name], *spec.size, len(spec.mean))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    report = export_c(session.model, tmp_path / "net.c")
    ran = board.run(Path(report.source), report.prefix, pixels, core)
    expected = session(np.stack([normalise(one.squeeze(), spec) for one in pixels]))
    np.testing.assert_array_equal(ran.outputs.argmax(1), expected.argmax(1))
    np.testing.assert_allclose(ran.outputs, expected, atol=1e-4)
    flash, ram = board.memory_of(Path(report.source), "net_run_image", core)
    assert report.constant_bytes < flash < report.constant_bytes + 16_384
    assert ram == report.arena_bytes


@every_core
def test_operations_of_version_1(core, tmp_path):
    model = load(GOLDEN)
    model = replace(model, graph=replace(model.graph, outputs=model.graph.outputs[:1]))
    report = export_c(model, tmp_path / "net.c")
    ran = board.run(Path(report.source), report.prefix, model.golden_input, core)
    np.testing.assert_allclose(ran.outputs, model.golden_outputs[0], rtol=1e-5, atol=1e-6)


@on_a_core("name", SMALL)
def test_integers_are_the_references_bits(name, core, tmp_path):
    model = load(file_of(name))
    graph = integer_graph(model.graph, model.input_spec)
    shape = (2, *model.input_spec.size, len(model.input_spec.mean))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    report = export_c(model, tmp_path / "net.c", precision="integer")
    ran = board.run(Path(report.source), report.prefix, pixels, core, output=np.int32, optimise="-O3")
    (expected,) = run(graph, pixels.transpose(0, 3, 1, 2).astype(np.int64) - 128)
    np.testing.assert_array_equal(ran.outputs, expected.reshape(2, -1))


def test_integers_on_a_cortex_m0(monkeypatch, tmp_path):
    """On the micro:bit, which has 16 KB of RAM and another timer, so that nothing is counted."""
    shutil.copytree(board.BOARD, tmp_path / "microbit")
    start = tmp_path / "microbit" / "board.c"
    before, stack, after = start.read_text().partition("0x20400000")
    assert stack
    start.write_text(f"{before}0x20004000{after}")
    monkeypatch.setattr(board, "BOARD", tmp_path / "microbit")
    core = board.Core(("qemu-system-arm", "-M", "microbit"), ("-mcpu=cortex-m0", "-mthumb"))
    monkeypatch.setitem(board.CORES, "cortex-m0", core)
    test_integers_are_the_references_bits("digits", "cortex-m0", tmp_path)


@on_a_core("seed", range(12))
def test_integers_of_a_drawn_network(seed, core, tmp_path):
    model, samples, given, expected = drawn_case(seed)
    report = export_c(model, tmp_path / "net.c", precision="integer", samples=samples)
    ran = board.run(Path(report.source), report.prefix, given, core, output=np.int32, optimise="-O3")
    np.testing.assert_array_equal(ran.outputs, expected)


FRAME = """
#define FRAME_OUTPUT_SIZE NET_OUTPUT_SIZE
static inline void frame_run_image(const uint8_t *frame, int32_t *output)
{
    static uint8_t pixels[NET_PIXELS_SIZE];
    net_prepare(frame, 31, 40, NET_RGB565, pixels);
    net_run_image(pixels, output);
}
#endif
"""


@every_core
def test_a_frame_of_a_camera(core, tmp_path):
    """From RGB565 to the scores: what Python gives for the same colours."""
    model = load(file_of("cifar10-resnet18"))
    report = export_c(model, tmp_path / "net.c", precision="integer")
    header = Path(report.header)
    text, _, end = header.read_text().rpartition("#endif")
    assert "NET_H" in end
    header.write_text(text + FRAME)
    words = np.random.default_rng(0).integers(0, 1 << 16, (31, 40), np.uint16)
    red, green, blue = words >> 11, words >> 5 & 63, words & 31
    colours = np.dstack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2])
    pixels = resized(colours.astype(np.uint8), model.input_spec)
    frame = words.astype("<u2").view(np.uint8).reshape(1, -1)
    ran = board.run(Path(report.source), "frame", frame, core, output=np.int32, optimise="-O3")
    graph = integer_graph(model.graph, model.input_spec)
    (expected,) = run(graph, pixels.transpose(2, 0, 1)[None].astype(np.int64) - 128)
    np.testing.assert_array_equal(ran.outputs, expected)


@pytest.fixture(scope="module")
def resnet20(tmp_path_factory):
    """IR-Net's ResNet-20 with drawn weights and statistics."""
    torch.manual_seed(0)
    model = irnet_resnet20()
    binarize_(model, Binarization(latent="none", scale="analytic"))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(std=0.2)
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 2)
    path = tmp_path_factory.mktemp("resnet20") / "net.safetensors"
    spec = InputSpec((32, 32), (32, 32), (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
    export(model.eval(), path, torch.zeros(1, 3, 32, 32), input_spec=spec)
    return load(path)


@pytest.mark.parametrize(("core", "millions"), MILLIONS.items())
def test_what_a_resnet20_takes(resnet20, core, millions, tmp_path):
    """At most 2 % more than was measured, with bits of the reference."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    report = export_c(resnet20, tmp_path / "net.c", precision="integer")
    ran = board.run(Path(report.source), report.prefix, pixels, core, output=np.int32, optimise="-O3")
    graph = integer_graph(resnet20.graph, resnet20.input_spec)
    (integers,) = run(graph, pixels.transpose(0, 3, 1, 2).astype(np.int64) - 128)
    np.testing.assert_array_equal(ran.outputs, integers)
    assert ran.instructions.sum(1).max() < 1.02e6 * millions
    flash, ram = board.memory_of(Path(report.source), "net_run_image", core, "-O3")
    assert flash <= 65_536
    assert ram <= 45_000
