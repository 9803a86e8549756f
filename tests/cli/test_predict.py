"""`bitfactor predict` with a network that classifies: several images and folders."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bitfactor.api.predict import predict
from bitfactor.cli import main

from .conftest import write


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for name, value in (("b.png", 30), ("a.png", 200)):
        write(folder / name, np.full((9, 12, 3), value, np.uint8))
    return folder


def test_a_folder_is_its_images_by_name(exported, folder, capsys):
    assert main(["predict", str(exported), str(folder), "--json"]) == 0
    from_folder = json.loads(capsys.readouterr().out)
    images = [str(folder / name) for name in ("a.png", "b.png")]
    assert main(["predict", str(exported), *images, "--json"]) == 0
    assert from_folder == json.loads(capsys.readouterr().out)
    assert [result["image"] for result in from_folder["images"]] == images


def test_a_folder_of_class_folders(exported, folder, capsys):
    assert main(["predict", str(exported), str(folder.parent), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 2


@pytest.mark.parametrize("flags", [("--box", "0,0,5,5"), ("-o", "drawn")])
def test_flags_of_poses(refused, exported, folder, flags):
    assert "expected a network that finds keypoints, found one that classifies" in refused(
        "predict", exported, folder, *flags
    )


def test_a_video(refused, exported, tmp_path):
    (tmp_path / "walk.mp4").write_bytes(b"")
    assert "walk.mp4: expected an image, found a video" in refused("predict", exported, tmp_path / "walk.mp4")


@pytest.fixture
def damaged(folder):
    """The folder with a file that is no image, between the others."""
    (folder / "aa.png").write_bytes(b"no image")
    return folder


def test_one_bad_image_of_several_is_a_row_with_an_error(exported, damaged, capsys):
    assert main(["predict", str(exported), str(damaged), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["images"]
    assert [row["image"] for row in rows] == [str(damaged / name) for name in ("a.png", "aa.png", "b.png")]
    assert [len(row["classes"]) for row in rows] == [3, 0, 3]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert "data that cannot be decoded" in rows[1]["error"]
    assert main(["predict", str(exported), str(damaged)]) == 1
    assert "data that cannot be decoded" in capsys.readouterr().out


def test_one_bad_image_or_video_of_several_with_poses(dots_file, damaged, tmp_path, capsys):
    (damaged / "walk.mp4").write_bytes(b"no video")
    arguments = ["predict", str(dots_file), str(damaged), "-o", str(tmp_path / "drawn"), "--json"]
    assert main(arguments) == 1
    rows = json.loads(capsys.readouterr().out)["poses"]
    assert [row["error"] is None for row in rows] == [True, False, True, False]
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["a.png", "b.png"]


def test_a_missing_image_of_two(exported, folder, capsys):
    assert main(["predict", str(exported), str(folder / "a.png"), str(folder / "none.png"), "--json"]) == 1
    errors = [row["error"] for row in json.loads(capsys.readouterr().out)["images"]]
    assert errors[0] is None
    assert "No such file" in errors[1]


@pytest.mark.parametrize("model", ["digits", "lsp-hourglass"])
def test_a_table_has_a_row_for_each_part_of_an_answer(model, damaged, tmp_path, capsys):
    table = tmp_path / "answers.csv"
    assert main(["predict", model, str(damaged), "--csv", str(table)]) == 1
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    parts = 3 if model == "digits" else 14
    assert [row["image"][-6:] for row in rows] == ["/a.png"] * parts + ["aa.png"] + ["/b.png"] * parts
    assert [bool(row["error"]) for row in rows] == [False] * parts + [True] + [False] * parts
    assert {"digits": "probability", "lsp-hourglass": "keypoint"}[model] in rows[0]


def test_names_that_are_no_utf_8(exported, folder, tmp_path):
    """In a process of its own, whose standard output is strict, as a terminal's is."""
    (folder / "a.png").rename(folder / os.fsdecode(b"caf\xe9.png"))
    table = tmp_path / "table.csv"
    command = [sys.executable, "-m", "bitfactor", "predict", exported, folder, "--csv", table]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONUTF8": "1"})
    assert done.returncode == 0, done.stderr
    assert r"caf\udce9.png" in done.stdout
    assert r"caf\udce9.png" in table.read_text()


def test_an_image_from_standard_input(folder):
    command = [sys.executable, "-m", "bitfactor", "predict", "digits", "-", "--json"]
    data = (folder / "a.png").read_bytes()
    found = subprocess.run(command, input=data, capture_output=True, check=True).stdout
    (row,) = json.loads(found)["images"]
    assert row["classes"] == predict("digits", folder / "a.png").to_dict()["images"][0]["classes"]
    empty = subprocess.run(command, input=b"", capture_output=True)
    assert empty.returncode == 2
    assert b"found an empty file" in empty.stderr
