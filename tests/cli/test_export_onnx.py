"""`bitfactor export --format onnx` and `--format qonnx`, from a run and from an exported file."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from bitfactor.cli import main
from bitfactor.runtime import Session

X = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)


@pytest.mark.parametrize("format", ["onnx", "qonnx"])
def test_run_and_file_give_the_same_network(run, exported, format, tmp_path, capsys):
    for name, source in (("a", run), ("b", exported)):
        command = ["export", str(source), "--format", format, "-o", str(tmp_path / f"{name}.onnx"), "--json"]
        assert main(command) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["same_class"] == report["checked_inputs"] == 2
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    (found,) = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(None, {"input": X})
    expected = Session(exported)(X)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    names = {node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node}
    assert ("BipolarQuant" in names) == (format == "qonnx")


def test_the_report_is_readable(exported, tmp_path, capsys):
    assert main(["export", str(exported), "--format", "onnx", "-o", str(tmp_path / "net.onnx")]) == 0
    text = capsys.readouterr().out
    assert f"{tmp_path / 'net.onnx'}: " in text
    assert "standard ONNX, opset 18" in text
    assert "the same class for 2 of 2 inputs" in text


def test_an_exported_file_is_no_run(exported, tmp_path, capsys):
    assert main(["export", str(exported), "-o", str(tmp_path / "net.safetensors")]) == 2
    assert "expected the directory of a run, found an exported file already" in capsys.readouterr().err


def test_ranges_that_nothing_uses_are_refused(run, tmp_path, capsys):
    for output in ("net.onnx", "net.c"):
        assert main(["export", str(run), "--calibration", "5", "-o", str(tmp_path / output)]) == 2
        assert "--calibration: expected a file in .safetensors, C with" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--best"], ["--real", "int8"]])
def test_flags_that_an_exported_file_cannot_follow(exported, flags, tmp_path, capsys):
    command = ["export", str(exported), "--format", "onnx", *flags, "-o", str(tmp_path / "net.onnx")]
    assert main(command) == 2
    assert "expected the directory of a run, with --best, --real or --calibration" in capsys.readouterr().err


def test_missing_packages_are_named(exported, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("bitfactor.targets.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", str(exported), "--format", "onnx", "-o", str(tmp_path / "net.onnx")]) == 2
    assert capsys.readouterr().err == (
        "bitfactor export --format onnx: expected the package onnxruntime,"
        " found that it is not installed; pip install 'bitfactor[onnx]'\n"
    )
