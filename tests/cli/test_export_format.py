"""The ending of a file's name and `--format` agree, or the export is refused before anything is written."""

import onnx
import pytest


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-o", "."], "expected a file to write, found a directory; name a file"),
        (
            ["-o", "x.onnx", "--format", "bitfactor"],
            "expected a name in .safetensors with --format bitfactor",
        ),
        (["-o", "x.safetensors", "--format", "onnx"], "expected a name in .onnx with --format onnx"),
        (["-o", "x.safetensors", "--format", "qonnx"], "expected a name in .onnx with --format qonnx"),
        (["-o", "x"], "expected a name in .safetensors or .onnx, found no ending"),
        (["-o", "x.pt"], "expected a name in .safetensors or .onnx, found .pt"),
    ],
)
def test_a_contradiction_is_refused(run, refused, tmp_path, monkeypatch, flags, said):
    monkeypatch.chdir(tmp_path)
    assert said in refused("export", run, *flags)
    assert list(tmp_path.iterdir()) == []


def test_the_ending_chooses_the_format(exported, tmp_path, monkeypatch):
    from bitfactor.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["export", str(exported), "-o", "net.onnx"]) == 0
    onnx.checker.check_model(onnx.load("net.onnx"))
