"""`bitfactor inspect` tells what a file holds, without torch, and draws its network."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bitfactor.cli import main
from bitfactor.format import Skeleton, load, save


@pytest.fixture
def inspect(capsys):
    """Run the command and return what it prints."""

    def inspect(*arguments):
        capsys.readouterr()
        assert main(["inspect", *map(str, arguments)]) == 0
        return capsys.readouterr().out

    return inspect


def test_the_program_is_what_freeze_writes(inspect, exported):
    *lines, last = inspect(exported, "--program").splitlines()
    found = json.loads(inspect(exported, "--program", "--json"))["program"]
    assert [line.split(maxsplit=1)[1] for line in lines] == found["instructions"]
    assert last == f"{len(lines)} instructions, {found['arena_bytes']:,} bytes of arena"
    kinds = [instruction.split()[0] for instruction in found["instructions"]]
    assert (kinds[0], kinds[-1]) == ("input", "output")
    assert "binary_conv" in kinds
    assert "name='input'" in found["instructions"][0]


def test_json_holds_the_header_and_every_operation(inspect, exported):
    found = json.loads(inspect(exported, "--json"))
    model = load(exported)
    content = exported.read_bytes()
    assert (found["bytes"], found["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert found["content_sha256"] in content[:200_000].decode("latin-1")
    assert found["input"] == {"name": "input", "shape": [1, 8, 8], "dtype": "float32"}
    assert found["labels"] == list(model.labels)
    assert found["provenance"]["recipe"] == "digits"
    assert found["rules"]["sign"] == "-1 for x <= 0, +1 for x > 0"
    assert [node["name"] for node in found["nodes"]] == [node.name for node in model.graph.nodes]
    assert found["totals"]["binary_bytes"] == model.tensor_bytes()["binary"]
    for count in ("binary_bytes", "real_bytes", "binary_macs", "real_macs"):
        assert found["totals"][count] == sum(node[count] for node in found["nodes"])


def test_macs_agree_with_those_of_summary(inspect, exported, capsys):
    assert main(["summary", "digits", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    totals = json.loads(inspect(exported, "--json"))["totals"]
    assert (totals["binary_macs"], totals["real_macs"]) == (summary["binary_macs"], summary["real_macs"])


def test_the_text_shows_layers_and_totals(inspect, exported):
    text = inspect(exported)
    figures = json.loads(inspect(exported, "--json"))
    assert text.startswith(f"{exported}: model file of format version 1\n")
    assert f"sha256      {figures['sha256']}" in text
    assert "10: 0, 1, 2, 3, 4, 5, 6, 7, ..." in text
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    conv = next(node for node in figures["nodes"] if node["op"] == "binary_conv2d")
    assert f"{conv['binary_macs']:,}" in lines[conv["name"]]
    assert f"{figures['totals']['binary_macs']:,}" in lines["total"]
    assert f"{figures['totals']['binary_fraction']:.1%} of 1 bit" in text


def test_how_far_it_was_trained_is_shown(inspect, exported, tmp_path):
    trained = {"step": "1500", "epoch": "3", "epochs": "8", "metric": "accuracy 0.9712"}
    model = load(exported)
    provenance = {**model.provenance, **trained}
    save(tmp_path / "half.safetensors", replace(model, provenance=provenance))
    text = inspect(tmp_path / "half.safetensors")
    assert "trained     epoch 3 of 8, step 1500, metric accuracy 0.9712" in text
    (line,) = (line for line in text.splitlines() if line.startswith("provenance"))
    assert not any(f" {name} " in line for name in trained)
    assert json.loads(inspect(tmp_path / "half.safetensors", "--json"))["provenance"] == provenance


@pytest.mark.parametrize(
    ("provenance", "shown"),
    [
        ({}, None),
        ({"epochs": "12"}, "epochs 12"),
        ({"step": "7"}, "step 7"),
        ({"epoch": "3"}, "epoch 3"),
        ({"metric": "0.9"}, "metric 0.9"),
    ],
)
def test_what_a_file_says_of_its_training(inspect, exported, tmp_path, provenance, shown):
    save(tmp_path / "net.safetensors", replace(load(exported), provenance=provenance))
    lines = [
        line for line in inspect(tmp_path / "net.safetensors").splitlines() if line.startswith("trained")
    ]
    assert lines == ([] if shown is None else [f"trained     {shown}"])


def test_keypoints_and_warnings_are_shown(inspect, exported, tmp_path):
    skeleton = Skeleton(("left_hand", "right_hand"), ((0, 1),))
    model = replace(load(exported), skeleton=skeleton, report={"warnings": ["conv9 is small"]})
    save(tmp_path / "pose.safetensors", model)
    text = inspect(tmp_path / "pose.safetensors")
    assert "keypoints   2: left_hand, right_hand" in text
    assert "warning at export: conv9 is small" in text


def test_svg(inspect, exported, tmp_path):
    printed = inspect(exported, "--svg", tmp_path / "net.svg")
    assert printed == inspect(exported)
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    texts = {"".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert exported.name in texts
    first = (tmp_path / "net.svg").read_bytes()
    inspect(exported, "--svg", tmp_path / "net.svg", "--json")
    assert (tmp_path / "net.svg").read_bytes() == first


@pytest.mark.parametrize(
    ("svg", "words"),
    [
        ("file/net.svg", "file: expected a directory, found a file"),
        (".", "--svg .: expected a file to write, found a directory"),
    ],
)
def test_a_place_for_the_svg_that_cannot_be_written(exported, tmp_path, capsys, monkeypatch, svg, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    assert main(["inspect", str(exported), "--svg", svg]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


def test_where_nothing_is_drawn_no_directory_stays(exported, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfactor.format.drawing.svg", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["inspect", str(exported), "--svg", str(tmp_path / "new" / "net.svg")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"text\n" * 9])
def test_what_is_no_model_file(content, tmp_path, capsys):
    path = tmp_path / "net.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert main(["inspect", str(path)]) == 2
    assert "expected a bitfactor model file, found" in capsys.readouterr().err


def test_it_needs_neither_torch_nor_matplotlib(exported, tmp_path):
    code = (
        "import sys; from bitfactor.cli import main\n"
        f"main(['inspect', {str(exported)!r}, '--svg', {str(tmp_path / 'net.svg')!r}])\n"
        "print(sorted({'torch', 'matplotlib', 'sklearn', 'onnx'} & sys.modules.keys()))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
