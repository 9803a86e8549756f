"""Every command does its job on a real run."""

import json
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest

import bitfactor
from bitfactor.cli import COMMANDS, main
from bitfactor.data import Digits
from bitfactor.runtime import Session, instruction_sets


@pytest.fixture
def digit(tmp_path):
    """A test digit as an image of another size, and its class."""
    digits = Digits.load()
    pixels = digits.test[0][0, 0].numpy() * digits.input_spec.std[0] + digits.input_spec.mean[0]
    image = cv2.resize((pixels * 255).round().astype(np.uint8), (64, 64), interpolation=cv2.INTER_NEAREST)
    cv2.imwrite(str(tmp_path / "digit.png"), image)
    return tmp_path / "digit.png"


def test_help_lists_every_command(call):
    text = call("--help")
    assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("command", ["train", "summary", "ablate"])
def test_a_command_that_needs_a_recipe_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"usage: bitfactor {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words", "found"),
    [
        ({}, ["recipes"], "5000"),
        ({}, ["--import", "FILE", "--import", "FILE", "recipes"], "5000"),
        ({}, ["zoo"], None),
        ({"GOMP_SPINCOUNT": "7"}, ["recipes"], "7"),
        ({"OMP_WAIT_POLICY": "active"}, ["recipes"], None),
    ],
)
def test_idle_threads_sleep_where_networks_are_trained(given, words, found, tmp_path):
    """The environment is set before a file of the user's runs, which may import torch."""
    (tmp_path / "file.py").write_text("import os\nprint(os.environ.get('GOMP_SPINCOUNT'))\n")
    words = [str(tmp_path / "file.py") if word == "FILE" else word for word in words]
    code = (
        "import os, sys\nfrom bitfactor.cli import main\nmain(sys.argv[1:])\n"
        "print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**kept, **given})
    assert done.stdout.splitlines()[-1] == str(found)
    assert "--import" not in words or done.stderr.splitlines()[0] == found  # what a file prints is no output


def test_recipes(call):
    assert re.search(r"^folder-compact +real +60 ", call("recipes"), re.M)
    assert json.loads(call("recipes", "--json"))[0]["binarization"]["latent"] == "holistic"


def test_summary(call):
    figures = json.loads(call("summary", "digits", "--json"))
    assert figures["binary_fraction"] > 0.98
    assert figures["compression"] > 15
    assert "layer2.1.conv2" in call("summary", "digits")


def test_evaluate_gives_the_same_for_run_and_file(call, run, exported):
    in_torch, from_file = (json.loads(call("evaluate", path, "--json")) for path in (run, exported))
    assert in_torch == from_file
    assert in_torch["total"] == 360
    assert in_torch["accuracy"] > 0.8
    assert f"{in_torch['correct']} of 360 right" in call("evaluate", exported)


def test_export_reports_sizes(call, run, tmp_path):
    report = json.loads(call("export", run, "-o", tmp_path / "again.safetensors", "--json"))
    assert report["file_bytes"] == (tmp_path / "again.safetensors").stat().st_size
    assert report["float_bytes"] > 11 * report["file_bytes"]
    binary = [layer for layer in report["layers"] if layer["kind"] == "binary"]
    assert len(binary) == 8
    smaller = [layer["float_bytes"] / layer["file_bytes"] for layer in binary]
    assert smaller == [16] * 5 + [32] * 3  # 32 channels fill half a word of 64 signs


def test_export_is_reproducible(call, run, exported, tmp_path):
    call("export", run, "-o", tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == exported.read_bytes()


def test_predict(call, exported, digit):
    (result,) = json.loads(call("predict", exported, digit, "--json"))["images"]
    scores = Session(exported)(Digits.load().test[0][:1].numpy())
    best = result["classes"][0]
    assert best["index"] == scores.argmax()
    assert best["probability"] > result["classes"][1]["probability"]
    assert len(result["classes"]) == 3
    assert best["label"] in call("predict", exported, digit)


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_predict_reads_colour_and_16_bit_images(call, exported, digit, depth):
    grey = cv2.imread(str(digit), cv2.IMREAD_GRAYSCALE).astype(depth) * (257 if depth is np.uint16 else 1)
    cv2.imwrite(str(digit), cv2.merge([grey, grey, grey]))
    (result,) = json.loads(call("predict", exported, digit, "--json"))["images"]
    assert result["classes"][0]["index"] == Session(exported)(Digits.load().test[0][:1].numpy()).argmax()


def test_bench(call, exported):
    result = json.loads(call("bench", exported, "--against", "torch", "--runs", "3", "--json"))
    ours, *torch = result["engines"]
    assert ours["name"] == f"bitfactor ({instruction_sets()[0]})"
    assert [engine["name"].split()[-1] for engine in torch] == ["float32", "bfloat16"]
    assert 0 < ours["minimum_ms"] <= ours["median_ms"]
    assert sum(layer["fraction"] for layer in result["layers"]) == pytest.approx(1)
    assert "times ours" in call("bench", exported, "--runs", "3", "--isa", "scalar")


def test_bench_at_several_precisions(call, exported):
    flags = ["--precision", "medium", "highest", "--runs", "3", "--isa", "scalar", "--json"]
    engines = json.loads(call("bench", exported, *flags))["engines"]
    assert [engine["name"] for engine in engines] == ["bitfactor (scalar, medium)", "bitfactor (scalar)"]


def test_low_precision_from_training_images_to_accuracy(call, run, tmp_path, capsys):
    path = tmp_path / "net.safetensors"
    report = json.loads(call("export", run, "-o", path, "--calibration", 40, "--json"))
    assert report["calibration"]["samples"] == 40
    assert report["calibration"]["decisions"] == "classes"
    found, exact = (
        json.loads(call("evaluate", path, "--precision", precision, "--json"))
        for precision in ("low", "highest")
    )
    assert abs(found["accuracy"] - exact["accuracy"]) < 0.1
    for arguments, message in (
        (
            ["export", run, "-o", tmp_path / "b.safetensors", "--calibration", 1_000_000],
            "as there are to train with, found 1000000; ask for as many as there are",
        ),
        (["evaluate", run, "--precision", "low"], "expected an exported file, for any but the highest"),
    ):
        assert main([str(argument) for argument in arguments]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "b.safetensors").exists()


def test_report_is_one_page_with_nothing_outside(call, run, tmp_path):
    call("report", run, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()

    class Page(HTMLParser):
        outside, figures = [], 0

        def handle_starttag(self, tag, attributes):
            self.figures += tag == "figure"
            self.outside += [v for k, v in attributes if k in ("src", "href") and not v.startswith("#")]

    page = Page()
    page.feed(text)
    assert page.figures == 7
    assert [v for v in page.outside if not v.startswith("data:")] == []
    assert "of 360 test images (scikit-learn" in text


def test_training_again_changes_nothing(call, run):
    before = (run / "checkpoint.ckpt").read_bytes()
    result = json.loads(
        call("train", "digits", "--out", run, "--epochs", 2, "--learning-rate", 0.005, "--json")
    )
    assert result["step"] == 44
    assert (run / "checkpoint.ckpt").read_bytes() == before


def test_a_plain_install_is_numpy_and_safetensors_and_training_has_the_commands():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {line.split(">=")[0] for line in project["dependencies"]} == {"numpy", "safetensors"}
    extras = project["optional-dependencies"]
    assert {"matplotlib", "opencv-python-headless", "rich", "shtab", "tyro"} == {
        x.split(">=")[0] for x in extras["cli"]
    }
    assert all(any("bitfactor[cli" in one for one in extras[name]) for name in ("train", "pose", "bench"))


def test_the_runtime_needs_numpy_and_safetensors_alone(exported, tmp_path):
    """A Python that can import these two and bitfactor, and nothing else that is installed."""
    import safetensors

    from bitfactor.common import _native

    for package in (np, safetensors):
        place = Path(package.__file__).parent
        for folder in (place, place.with_name(f"{place.name}.libs")):
            if folder.exists():
                (tmp_path / folder.name).symlink_to(folder)
    subprocess.run(["cp", "-r", Path(bitfactor.__file__).parent, tmp_path / "bitfactor"], check=True)
    for left in (tmp_path / "bitfactor" / "common").glob("_native*.so"):
        left.unlink()
    native = Path(_native.__file__)
    (tmp_path / "bitfactor" / "common" / native.name).symlink_to(native)
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import numpy as np\n"
        "from bitfactor.runtime import Session\n"
        "session = Session(sys.argv[2]); session.verify()\n"
        "print(session(np.zeros((2, 1, 8, 8), np.float32)).shape, 'torch' in sys.modules)\n"
        "try:\n    import torch\n    print('torch is there')\nexcept ImportError:\n    print('no torch')\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path, exported]
    output = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ)
    )
    assert output.stdout.split("\n")[:2] == ["(2, 10) False", "no torch"]
