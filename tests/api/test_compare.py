"""A comparison says int8 where int8 is better, one bit where that is, and writes files that others run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

import bitfactor
from bitfactor.api.candidates import written
from bitfactor.api.compare import NETWORKS, Compared, Comparison
from bitfactor.cli import main
from bitfactor.common.errors import TerminatedError
from bitfactor.format import load
from bitfactor.study.figures import front

LABELS = ("bright", "dark")


def row(weights, accuracy, ms, size=1000, count=1000, network=None):
    """A network that is right for the first images, so that others' mistakes are among its own."""
    right = np.arange(count) < accuracy * count
    name = network or ("binary" if weights == "1 bit" else "compact")
    return Compared(name, weights, "engine", "file", 64, accuracy, (0, 1), ms, size, 1, right)


def compared(*rows):
    return Comparison(Path("out"), "images", "machine", 60, 1, rows)


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([row("1 bit", 0.80, 1.0), row("int8", 0.90, 1.0)], "compact, int8"),
        ([row("1 bit", 0.90, 1.0), row("int8", 0.80, 0.5)], "binary, 1 bit"),
        ([row("1 bit", 0.900, 1.0), row("int8", 0.901, 0.5)], "compact, int8"),
        ([row("1 bit", 0.900, 0.5), row("int8", 0.901, 1.0)], "binary, 1 bit"),
        ([row("1 bit", 0.9, 1.0, 500), row("int8", 0.9, 0.99, 900)], "binary, 1 bit"),
        ([row("1 bit", 0.9, 1.0, 900), row("int8", 0.9, 1.02, 500)], "compact, int8"),
        (
            [row("1 bit", 0.8, 1.0), row("int8", 0.9, 2.0), row("float32", 0.9, 1.0, network="float")],
            "float, float32",
        ),
    ],
)
def test_what_is_named_follows_from_the_figures(rows, taken):
    found = compared(*rows)
    assert found.recommended.name == taken
    assert found.sentence.startswith(f"Take {taken}: ")


def test_the_sentence_says_what_the_other_kind_would_give():
    found = compared(row("1 bit", 0.80, 2.0, 500), row("int8", 0.90, 1.0, 1000))
    assert found.sentence == (
        "Take compact, int8: 90.0% in 1.00 ms. Beside binary, 1 bit, that is 10.0 points more (±1.9), "
        "at 0.50 times its latency and 2.00 times its bytes."
    )


def test_a_lead_is_of_the_same_images():
    one, other = row("1 bit", 0.9, 1), row("int8", 0.8, 1)
    lead, half = one.lead_over(other)
    assert lead == pytest.approx(0.1)
    assert half == pytest.approx(1.96 * np.sqrt(0.1 - 0.01) / np.sqrt(1000))
    assert one.lead_over(one) == (0, 0)


def test_the_chart_joins_the_networks_that_no_other_beats():
    points = {
        "a": ("int8", 1.0, 0.8),
        "b": ("1 bit", 1.0, 0.7),
        "c": ("1 bit", 2.0, 0.8),
        "d": ("int8", 4.0, 0.9),
    }
    svg = front({name: (*point, (point[2] - 0.1, point[2] + 0.1)) for name, point in points.items()})
    (line,) = re.findall(r'<g id="front">\s*<path d="([^"]*)"', svg)
    assert len(re.findall("[ML]", line)) == 2


def photos(directory, train=24, val=16):
    random = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for label, grey in zip(LABELS, (190, 60), strict=True):
            (directory / part / label).mkdir(parents=True)
            for i in range(count):
                image = np.clip(random.normal(grey, 40, (80, 90, 3)), 0, 255).astype(np.uint8)
                cv2.imwrite(str(directory / part / label / f"{i}.png"), image)
    return directory


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A comparison whose networks are trained already, small ones for an epoch each."""
    place = tmp_path_factory.mktemp("compared")
    data = photos(place / "photos")
    small = {
        "size": 32,
        "epochs": 4,
        "batch_size": 8,
        "widths": (8, 16),
        "blocks": (1, 1),
        "warmup_epochs": 0.0,
    }
    for name, (recipe, real) in NETWORKS.items():
        stem = {} if name == "compact" else {"stem": "halving"}
        bitfactor.train(recipe, out=place / name, data=data, real=real, progress=False, **small, **stem)
    return place


def test_it_measures_writes_and_names_one(out, capsys, monkeypatch):
    monkeypatch.setattr("bitfactor.api.compare.peak_memory", lambda engine, *_: 11_000_000)
    status = main(["compare", str(out / "photos"), "--out", str(out), "--minutes", "1", "--runs", "3"])
    assert status == 0
    found = json.loads((out / "compare.json").read_text())
    rows = {(one["network"], one["weights"]): one for one in found["rows"]}
    assert {*rows} == {
        ("binary", "1 bit"),
        *((name, weights) for name in ("float", "compact") for weights in ("float32", "int8")),
    }
    for one in found["rows"]:
        assert one["interval"][0] <= one["accuracy"] <= one["interval"][1]
        assert one["bytes"] == (out / one["file"]).stat().st_size
        assert one["memory"] == 11_000_000
    assert rows["float", "float32"]["accuracy"] > 0.9
    assert abs(rows["float", "float32"]["accuracy"] - rows["float", "int8"]["accuracy"]) < 0.1
    printed = capsys.readouterr().out
    assert found["sentence"] in printed
    assert "32 test images in " in printed
    page = (out / "compare.html").read_text()
    assert found["sentence"] in page
    assert all(one["file"] in text for one in found["rows"] for text in (printed, page))
    assert "<svg" in page


def test_networks_in_full_precision_run_in_bitfactor_too(out):
    """In int8 from a file of int8 weights, whose answers are those of ONNX Runtime's int8 on most images."""
    made = {(one.engine, one.weights): one for one in written(out / "float", out / "again", threads=1)}
    assert {engine for engine, _ in made} == {"bitfactor", "bitfactor, low", "OpenVINO", "ONNX Runtime"}
    ours, theirs = made["bitfactor, low", "int8"], made["ONNX Runtime", "int8"]
    assert ours.file.name == "again-int8.safetensors"
    nodes = load(ours.file).graph.nodes
    assert {node.tensors["weight"].dtype for node in nodes if node.op == "conv2d"} == {np.dtype(np.int8)}
    found, expected = (one.on(out / "photos").found for one in (ours, theirs))
    assert (found == expected).mean() > 0.9


def test_what_it_writes_runs_without_bitfactor(out):
    """float.onnx and float-int8.onnx, and a process without torch for the binary file."""
    code = "import sys, onnxruntime as o\n"
    code += "print([o.InferenceSession(file).get_outputs()[0].shape for file in sys.argv[1:]])"
    files = [
        str(out / name) for name in ("float.onnx", "float-int8.onnx", "compact.onnx", "compact-int8.onnx")
    ]
    if not Path(files[0]).exists():
        bitfactor.compare(out / "photos", out=out, minutes=1, runs=1, progress=False)
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[[1, 2]] * 4}\n"
    assert bitfactor.Session(out / "binary.safetensors").labels == LABELS


def test_too_few_images_and_too_little_time_are_refused(tmp_path, monkeypatch):
    slow = SimpleNamespace(seconds=60.0, steps=2, evaluation=1.0)
    monkeypatch.setattr("bitfactor.recipes.fitting.dry_run", lambda *_, **__: slow)
    with pytest.raises(bitfactor.InputError, match="30 images or more"):
        bitfactor.compare(photos(tmp_path / "few", 8, 4), out=tmp_path / "out", progress=False)
    with pytest.raises(bitfactor.InputError, match="64 training images or more, for a batch, found 16"):
        bitfactor.compare(photos(tmp_path / "batch", 8, 16), out=tmp_path / "out", progress=False)
    enough = photos(tmp_path / "enough", 32, 16)
    with pytest.raises(bitfactor.InputError, match=r"minutes: expected 20\.\d or more, a third for each"):
        bitfactor.compare(enough, out=tmp_path / "out", minutes=5, progress=False)
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_not_its_own_and_another_time_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(bitfactor.InputError, match="file: expected a directory, found a file"):
        bitfactor.compare("photos", out=tmp_path / "file")
    (tmp_path / "compact-int8.onnx").write_bytes(b"somebody's")
    with pytest.raises(bitfactor.InputError, match=r"compact-int8\.onnx: expected a new file"):
        bitfactor.compare("photos", out=tmp_path)
    (tmp_path / "compare.json").write_text('{"minutes": 60}')
    with pytest.raises(
        bitfactor.InputError, match=r"minutes: expected 60, with which .* was begun, found 30"
    ):
        bitfactor.compare("photos", out=tmp_path, minutes=30)
    (tmp_path / "compare.json").write_text("[]")
    with pytest.raises(bitfactor.InputError, match=r"compare\.json: expected a file that compare wrote"):
        bitfactor.compare("photos", out=tmp_path)
    for name in ("runs", "threads"):
        with pytest.raises(bitfactor.InputError, match=f"{name}: expected 1 or more, found 0"):
            bitfactor.compare("photos", out=tmp_path, **{name: 0})


def test_a_missing_engine_is_named_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "bitfactor.engines.with_openvino", raising=False)
    with pytest.raises(bitfactor.InputError, match=r"package openvino, .*pip install 'bitfactor\[bench\]'"):
        bitfactor.compare("photos", out=tmp_path)


def test_the_time_is_noted_when_training_begins_and_a_stop_is_said(tmp_path, monkeypatch, capsys):
    def stopped(*_, callbacks, **__):
        callbacks[0].on_train_start(None)
        raise TerminatedError("stopped after step 7, which is saved")

    monkeypatch.setattr("bitfactor.api.compare.train", stopped)
    data, out = photos(tmp_path / "photos", 32, 16), tmp_path / "out"
    assert main(["compare", str(data), "--out", str(out), "--minutes", "5"]) == 143
    assert "which is saved; the same command goes on from there" in capsys.readouterr().err
    assert json.loads((out / "compare.json").read_text()) == {"minutes": 5}
