"""The ending of a file's name and `--format` agree, or the export is refused before anything is written."""

import re

import onnx
import pytest


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-o", "."], "expected a file to write, found a directory; name a file"),
        (
            ["-o", "x.onnx", "--format", "bitfactor"],
            "expected a name in .safetensors, found",
        ),
        (["-o", "x.safetensors", "--format", "onnx"], "expected a name in .onnx, found"),
        (["-o", "x.safetensors", "--format", "qonnx"], "expected a name in .onnx, found"),
        (["-o", "x.c", "--format", "onnx"], "expected a name in .onnx, found"),
        (["-o", "x.onnx", "--format", "c"], "expected a name in .c, found"),
        (["-o", "x.onnx", "--precision", "integer"], "expected a name in .c, or --format c"),
        (["-o", "x", "--board", "pico"], "expected --precision integer, found --precision highest"),
        (
            ["-o", "x", "--board", "pico", "--precision", "integer", "--format", "onnx"],
            "expected a name in .c, or --format c",
        ),
        (["-o", "x"], "expected a name in .safetensors, .onnx or .c, found no ending"),
        (["-o", "x.pt"], "expected a name in .safetensors, .onnx or .c, found .pt"),
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


@pytest.mark.parametrize("source", ["the run", "the file", "digits"])
def test_c_of_a_run_of_a_file_or_of_the_zoo(run, exported, source, tmp_path, monkeypatch, capsys):
    from bitfactor.cli import main

    monkeypatch.chdir(tmp_path)
    network = {"the run": str(run), "the file": str(exported)}.get(source, source)
    assert main(["export", network, "--format", "c", "-o", "net.c"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.c", "net.h"]
    assert "bytes of constants (flash)" in capsys.readouterr().out


def test_c_in_integers(tmp_path, monkeypatch, capsys):
    from bitfactor.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["export", "digits", "-o", "net.c", "--precision", "integer"]) == 0
    assert "bytes of constants (flash)" in capsys.readouterr().out
    written = (tmp_path / "net.c").read_text() + (tmp_path / "net.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", written, flags=re.DOTALL)
    assert not {"float", "double", "malloc", "math"} & set(re.findall(r"\w+", code))


def test_a_directory_for_a_board(tmp_path, monkeypatch, capsys):
    from bitfactor.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").touch()
    assert main(["export", "digits", "-o", "my-net", "--precision", "integer", "--board", "arduino"]) == 0
    assert "my-net: 6 files for arduino" in capsys.readouterr().out
    assert (tmp_path / "my-net/src/my-net.h").is_file()
    command = ["export", "digits", "-o", "mine", "--precision", "integer", "--board", "arduino"]
    assert main(command) == 2
    assert "mine: expected a directory, found a file" in capsys.readouterr().err
