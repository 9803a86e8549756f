"""`bitfactor predict` with a network that classifies: several images and folders."""

import json

import numpy as np
import pytest

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
