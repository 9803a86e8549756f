"""What the report of an export says of a board, and what it refuses."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec, load
from bitfactor.format.integer import integers_of
from bitfactor.runtime.zoo import file_of
from bitfactor.targets.c99 import board, export_c
from bitfactor.targets.c99.integers import IntegerLayers

# Millions of instructions and bytes of flash, in the emulator: gcc 12 at -O3.
COUNTED = {
    "digits": {
        "cortex-m0plus": (2.06, 48_192),
        "cortex-m3": (1.40, 46_848),
        "cortex-m4": (1.40, 46_656),
        "rv32imc": (1.67, 49_928),
    },
    "cifar10-resnet18": {
        "cortex-m0plus": (11.79, 140_640),
        "cortex-m3": (8.11, 138_668),
        "cortex-m4": (8.14, 138_460),
        "rv32imc": (9.75, 142_856),
    },
    "cifar10-resnet20": {
        "cortex-m0plus": (14.08, 60_500),
        "cortex-m3": (9.95, 59_136),
        "cortex-m4": (9.97, 59_024),
        "rv32imc": (12.84, 62_036),
    },
    "cifar10-resnet20-wide": {
        "cortex-m0plus": (55.21, 198_156),
        "cortex-m3": (39.87, 195_756),
        "cortex-m4": (40.17, 195_604),
        "rv32imc": (48.66, 200_360),
    },
}


@pytest.fixture
def no_emulator(monkeypatch):
    monkeypatch.setattr("bitfactor.targets.c99.board.shutil.which", lambda _: None)


@pytest.fixture(scope="module")
def digits():
    return load(file_of("digits"))


@pytest.fixture
def of_widths(tmp_path):
    """Return a function that gives a ResNet-20 of three widths."""

    def of_widths(*widths):
        torch.manual_seed(0)
        net = bitfactor.models.irnet_resnet20(widths=widths)
        bitfactor.binarize_(net, latent="none", scale="analytic", keep_real=["conv1", "linear"])
        spec = InputSpec((32, 32), (32, 32), (0.49, 0.48, 0.45), (0.25, 0.24, 0.26))
        path = tmp_path / f"{widths[0]}.safetensors"
        bitfactor.export(net.eval(), path, torch.randn(2, 3, 32, 32), input_spec=spec)
        return load(path)

    return of_widths


def test_what_layers_take_is_estimated_without_an_emulator(digits, tmp_path, no_emulator):
    report = export_c(digits, tmp_path / "net.c", precision="integer", core="cortex-m3")
    assert not report.counted
    assert report.constant_bytes < report.flash < report.constant_bytes + 32_768
    assert report.ram == report.arena_bytes
    assert "estimated from the counts of kernels" in str(report)


@pytest.mark.parametrize("name", COUNTED)
def test_estimates_are_near_counts(name):
    layers = IntegerLayers(integers_of(load(file_of(name))))
    for core, (millions, bytes_) in COUNTED[name].items():
        costs, flash, _ = board.estimated(layers, core)
        assert sum(cost.instructions for cost in costs) == pytest.approx(millions * 1e6, rel=0.1)
        assert bytes_ <= flash <= 1.25 * bytes_


@pytest.mark.skipif(not board.CORES["cortex-m0plus"].installed, reason="needs a compiler and an emulator")
@pytest.mark.parametrize("name", ["inputs", "board"])
def test_what_is_counted_is_of_the_network_alone(name, digits, tmp_path):
    """Also with the name of a file of the board."""
    report = export_c(digits, tmp_path / f"{name}.c", precision="integer", core="cortex-m0plus")
    assert report.counted, report.note
    millions, flash = COUNTED["digits"]["cortex-m0plus"]
    assert sum(cost.instructions for cost in report.costs) == pytest.approx(millions * 1e6, rel=0.02)
    assert report.flash == pytest.approx(flash, rel=0.02)
    assert report.ram == report.arena_bytes
    entry = f"{name}_run_image"
    assert board.memory_of(Path(report.source), entry, "cortex-m0plus", "-O3") == (report.flash, report.ram)


def test_limit_and_report_are_of_the_same_bytes(digits, tmp_path, no_emulator):
    of = {"precision": "integer", "core": "cortex-m0plus"}
    report = export_c(digits, tmp_path / "net.c", **of)
    limits = {"max_ram": report.ram, "max_flash": report.flash}
    assert export_c(digits, tmp_path / "net.c", **of, **limits) == report
    for limit, bytes_ in limits.items():
        with pytest.raises(InputError, match=f"{bytes_} bytes"):
            export_c(digits, tmp_path / "net.c", **of, **{limit: bytes_ - 1})


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_ram": 8000}, "9216 of them are for the tables of layer 'layer2.0.conv2'; allow 12288, or"),
        ({"max_ram": 100}, "smaller images"),
        ({"max_flash": 54_000}, "at most .* bytes; layer 'layer2.0.conv2' takes .*allow.*bytes of weights"),
        ({"max_flash": 100}, "fewer layers"),
        ({"max_ram": 0}, "--max-ram: expected 1 byte or more, found 0"),
        ({"max_flash": -5}, "--max-flash: expected 1 byte or more, found -5"),
    ],
)
def test_a_network_that_does_not_fit(limit, said, digits, tmp_path, no_emulator):
    with pytest.raises(InputError, match=said):
        export_c(digits, tmp_path / "net.c", precision="integer", **limit)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("limit", [26_000, 41_500])
def test_a_network_as_narrow_as_advised_fits(limit, of_widths, tmp_path):
    said = "32768 of them are for a map of 16 x 32 x 32 of layer 'conv1'.* .. % of each layer's channels"
    with pytest.raises(InputError, match=said) as caught:
        export_c(of_widths(16, 32, 64), tmp_path / "net.c", precision="integer", max_ram=limit)
    percent = int(re.search(r"(\d+) %", str(caught.value))[1])
    width = 16 * percent // 200 * 2
    narrow = of_widths(width, 2 * width, 4 * width)
    export_c(narrow, tmp_path / "net.c", precision="integer", max_ram=limit)


@pytest.mark.parametrize("name", ["stdint", "Math", "string"])
def test_a_name_of_a_standard_header_is_refused(name, digits, tmp_path):
    with pytest.raises(InputError, match=f"expected a name that no header of C has, found '{name}'"):
        export_c(digits, tmp_path / f"{name}.c", precision="integer")


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("gcc", subprocess.CalledProcessError(1, "", stderr="net.c: error: no memory\nends"), "no memory"),
        ("gcc", FileNotFoundError(), "gcc failed: FileNotFoundError"),
        ("qemu", subprocess.CalledProcessError(-11, "", stderr=""), "qemu-system-arm failed: exit code -11"),
        ("qemu", subprocess.TimeoutExpired("", 300), "TimeoutExpired"),
        ("qemu", "", "printed '', and no outputs"),
        ("qemu", "fault\n", "printed 'fault"),
    ],
)
def test_it_is_estimated_where_the_compiler_or_emulator_fails(
    program, outcome, said, digits, tmp_path, monkeypatch
):
    def run(command, **_):
        if program not in command[0]:
            return subprocess.CompletedProcess(command, 0, "", "")
        if isinstance(outcome, Exception):
            raise outcome
        return subprocess.CompletedProcess(command, 0, outcome, "")

    monkeypatch.setattr(shutil, "which", lambda _: "found")
    monkeypatch.setattr(subprocess, "run", run)
    report = export_c(digits, tmp_path / "net.c", precision="integer", core="cortex-m0plus")
    assert not report.counted
    assert said in report.note
    assert report.note in str(report)
    assert report.flash > report.constant_bytes
