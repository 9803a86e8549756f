"""`bitfactor pckh` scores predictions from files, without torch."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.io

from bitfactor.cli import main


@pytest.fixture
def files(tmp_path):
    """Two instances with heads of size 6; one right wrist is far off, one left ankle is not labelled."""
    true = np.random.default_rng(0).uniform(1, 200, (16, 2, 2))
    missing = np.zeros((16, 2), np.uint8)
    missing[5, 0] = 1
    heads = np.stack([np.zeros((2, 2)), np.tile([[6.0], [8.0]], 2)])
    scipy.io.savemat(
        tmp_path / "truth.mat", {"pos_gt_src": true, "jnt_missing": missing, "headboxes_src": heads}
    )
    predicted = true.transpose(2, 0, 1).copy()
    predicted[1, 10] += 30
    predicted[:, 3, 0] += 1  # a sixth of the head: found at 0.5, not at 0.1
    (tmp_path / "predictions.json").write_text(json.dumps({"preds": predicted.tolist()}))
    return [str(tmp_path / "predictions.json"), "--truth", str(tmp_path / "truth.mat")]


def test_table(files, capsys):
    assert main(["pckh", *files]) == 0
    lines = [line.rsplit(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    table = {name: (half, tenth) for name, half, tenth in lines[:12]}
    assert table["PCKh"] == ("@0.5", "@0.1")
    assert table["Wrist"] == ("75.00", "75.00")
    assert table["Hip"] == ("100.00", "50.00")
    assert table["plain mean of 14"] == (f"{100 * 13.5 / 14:.2f}", f"{100 * 12.5 / 14:.2f}")
    assert table["weighted mean of 14"] == (f"{100 * 26 / 27:.2f}", f"{100 * 24 / 27:.2f}")
    assert table["pooled over 16"] == (f"{100 * 30 / 31:.2f}", f"{100 * 28 / 31:.2f}")


def test_json(files, capsys):
    assert main(["pckh", *files, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["instances"] == 2
    assert sum(printed["labelled"]) == 31
    assert printed["pckh"]["0.5"]["groups"]["Wrist"] == 0.75
    assert printed["pckh"]["0.5"]["joints"][10] == 0.5
    assert printed["pckh"]["0.5"]["means"] == pytest.approx(
        {"plain": 13.5 / 14, "weighted": 26 / 27, "pooled": 30 / 31}
    )


def test_what_cannot_be_scored(files, tmp_path, capsys):
    (tmp_path / "one.json").write_text(json.dumps(np.zeros((1, 16, 2)).tolist()))
    assert main(["pckh", str(tmp_path / "one.json"), *files[1:]]) == 2
    assert "one.json: expected joints of shape (2, 16, 2)" in capsys.readouterr().err
    assert main(["pckh", str(tmp_path / "none.json"), *files[1:]]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["pckh", files[0], "--truth", files[0]]) == 2
    assert "expected detections_our_format.mat" in capsys.readouterr().err


def test_torch_is_not_imported(files):
    code = (
        "import sys; from bitfactor.cli import main; assert main(sys.argv[1:]) == 0\n"
        "assert not {'torch', 'matplotlib', 'sklearn'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code, "pckh", *files], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_instances_without_a_label_have_null(files, tmp_path, capsys):
    truth = scipy.io.loadmat(tmp_path / "truth.mat")
    truth["jnt_missing"][9] = 1
    scipy.io.savemat(tmp_path / "truth.mat", {k: v for k, v in truth.items() if not k.startswith("__")})
    assert main(["pckh", *files, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pckh"]["0.5"]["groups"]["Head"] is None
    assert main(["pckh", *files]) == 0
    assert "Head" in (line := capsys.readouterr().out.splitlines()[2])
    assert line.split()[1:] == ["-", "-"]
