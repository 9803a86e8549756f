"""`bitfactor check-data` says what is wrong with data, and its status tells."""

import json

import cv2
import numpy as np
import pytest

from bitfactor.cli import main


@pytest.fixture
def folder(tmp_path):
    for i in range(30):
        path = tmp_path / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), np.full((8, 9, 3), 5 * i, np.uint8))
    return tmp_path


def test_sound_data(folder, capfd):
    assert main(["check-data", str(folder)]) == 0
    printed = capfd.readouterr().out
    assert "no problems" in printed
    assert "9 to 9, median 9" in printed


def test_problems(folder, capfd):
    for i in range(0, 26, 2):
        (folder / "cat" / f"{i}.png").write_bytes(b"text")
    assert main(["check-data", str(folder)]) == 1
    printed = capfd.readouterr().out
    assert "problem: corrupt images (13)" in printed
    assert "cat/0.png" in printed
    assert "... and 3 more; --json lists all" in printed


def test_json(folder, capfd):
    (folder / "cat" / "0.png").write_bytes(b"text")
    assert main(["check-data", str(folder), "--json"]) == 1
    findings = json.loads(capfd.readouterr().out)
    assert findings["images"] == {"train": 30}
    assert len(findings["problems"]["corrupt images"]) == 1


def test_unknown_layout(tmp_path, capfd):
    assert main(["check-data", str(tmp_path)]) == 2
    assert "expected one of the known layouts" in capfd.readouterr().err
