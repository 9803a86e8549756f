"""`bitfactor predict` with a pose network: the right place in images of every kind, or one clear line."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from bitfactor.cli import main

from .conftest import dots, write


def expect_found(pose, places, side):
    """Each keypoint lies within a cell of the 16 x 16 map over a square of `side` pixels."""
    keypoints, confidence = pose
    assert np.abs(keypoints - places).max() <= 0.6 * side / 16
    assert confidence.min() > 0.2


def test_the_whole_image_by_default(poses, tmp_path):
    places = [(40, 20), (150, 70), (90, 100)]
    path = write(tmp_path / "dots.png", dots(200, 120, places, 8))
    expect_found(poses(path)[0], places, 200)


def test_a_box_finds_more_exactly_and_one_person_of_two(poses, tmp_path):
    near, far = [(30, 30), (60, 30), (45, 50)], [(330, 130), (360, 130), (345, 150)]
    image = np.where(np.arange(400)[:, None] < 200, dots(400, 200, near, 3), dots(400, 200, far, 3))
    path = write(tmp_path / "two.png", image)
    expect_found(poses(path, "--box", "20,20,50,40")[0], near, 1.25 * 50)
    expect_found(poses(path, "--box", "320,120,50,40")[0], far, 1.25 * 50)


def test_a_box_partly_outside(poses, tmp_path):
    places = [(4, 4), (20, 6), (8, 20)]
    path = write(tmp_path / "corner.png", dots(200, 100, places, 2))
    expect_found(poses(path, "--box=-20,-20,50,50")[0], places, 1.25 * 50)


@pytest.mark.parametrize("box", ["200,0,10,10", "0,100,10,10", "-30,0,30,10", "0,-10,30,10"])
def test_a_box_outside(refused, dots_file, tmp_path, box):
    path = write(tmp_path / "grey.png", np.zeros((100, 200, 3), np.uint8))
    line = refused("predict", dots_file, path, f"--box={box}")
    assert "expected a box that meets the image, 200 x 100 pixels" in line


@pytest.mark.parametrize("box", ["1,2,3", "a,b,c,d", "1,2,0,4", "1,2,3,-4", "nan,2,3,4", ""])
def test_a_box_that_is_none(refused, dots_file, tmp_path, box):
    path = write(tmp_path / "grey.png", np.zeros((10, 20, 3), np.uint8))
    assert "--box: expected left, top, width and height" in refused(
        "predict", dots_file, path, f"--box={box}"
    )


def test_a_grey_image_has_no_colours(poses, tmp_path):
    assert cv2.imwrite(str(tmp_path / "grey.png"), np.full((50, 70), 90, np.uint8))
    keypoints, confidence = poses(tmp_path / "grey.png")[0]
    assert np.isfinite(keypoints).all()
    assert confidence.max() == 0


def test_20_pixels(poses, tmp_path):
    places = [(3, 4), (15, 5), (9, 16)]
    expect_found(poses(write(tmp_path / "small.png", dots(20, 20, places, 1)))[0], places, 20)


def test_24_million_pixels(poses, tmp_path):
    places = [(900, 700), (5000, 900), (2500, 3300)]
    path = write(tmp_path / "large.jpg", dots(6000, 4000, places, 250))
    expect_found(poses(path, "-o", tmp_path / "drawn.jpg")[0], places, 6000)
    drawn = cv2.imread(str(tmp_path / "drawn.jpg"))
    assert drawn.shape == (4000, 6000, 3)


def test_a_photo_that_says_it_is_turned(poses, tmp_path):
    """EXIF orientation 6: to be turned by 90 degrees clockwise; keypoints and drawing are as one sees it."""
    places = [(20, 30), (80, 60), (50, 150)]
    seen = dots(100, 200, places, 7)
    stored = cv2.rotate(seen, cv2.ROTATE_90_COUNTERCLOCKWISE)
    data = cv2.imencode(".jpg", stored[..., ::-1])[1].tobytes()
    tiff = (
        b"II*\x00\x08\x00\x00\x00"
        + b"\x01\x00"
        + b"\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00"
        + bytes(4)
    )
    exif = b"Exif\x00\x00" + tiff
    (tmp_path / "turned.jpg").write_bytes(
        data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + data[2:]
    )
    expect_found(poses(tmp_path / "turned.jpg", "-o", tmp_path / "drawn.png")[0], places, 200)
    assert cv2.imread(str(tmp_path / "drawn.png")).shape == (200, 100, 3)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n" + bytes(50)])
def test_an_unreadable_image(refused, dots_file, tmp_path, content):
    (tmp_path / "bad.png").write_bytes(content)
    line = refused("predict", dots_file, tmp_path / "bad.png", "-o", tmp_path / "out.png")
    assert "bad.png: expected an image" in line
    assert not (tmp_path / "out.png").exists()


@pytest.fixture
def film(tmp_path):
    """A video of 12 frames in which a dot moves, and the places in each."""
    steps = [[(20 + 5 * i, 20), (100, 70), (20, 80)] for i in range(12)]
    path = tmp_path / "walk.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (128, 96))
    for places in steps:
        writer.write(np.ascontiguousarray(dots(128, 96, places, 6)[..., ::-1]))
    writer.release()
    return path, steps


@pytest.mark.parametrize("output", ["drawn", "drawn.mp4", "drawn.avi"])
def test_a_video(poses, film, tmp_path, output):
    path, steps = film
    found = poses(path, "-o", tmp_path / output)
    assert len(found) == len(steps)
    for pose, places in zip(found, steps, strict=True):
        expect_found(pose, places, 128)
    drawn = tmp_path / output / "walk.avi" if output == "drawn" else tmp_path / output
    capture = cv2.VideoCapture(str(drawn))
    assert capture.get(cv2.CAP_PROP_FPS) == 10
    frames = 0
    while capture.read()[0]:
        frames += 1
    assert frames == len(steps)


@pytest.mark.parametrize("content", [None, b"", b"no video at all"])
def test_an_unreadable_video(refused, dots_file, tmp_path, content):
    if content is not None:
        (tmp_path / "walk.mp4").write_bytes(content)
    assert "walk.mp4: expected a video" in refused("predict", dots_file, tmp_path / "walk.mp4")


@pytest.fixture
def folder(tmp_path):
    """A folder with two images and a text."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, x in (("b.png", 30), ("a.jpg", 90)):
        write(folder / name, dots(128, 128, [(x, 30), (60, 60), (30, 90)], 7))
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_a_drawing_that_is_too_wide_for_its_kind(refused, dots_file, tmp_path):
    """WebP has 16,383 pixels a side."""
    write(tmp_path / "wide.png", np.zeros((300, 17_000, 3), np.uint8))
    line = refused("predict", dots_file, tmp_path / "wide.png", "-o", tmp_path / "drawn.webp")
    assert "expected a size that .webp has, found 300 x 17000 pixels; name it .png" in line
    assert not (tmp_path / "drawn.webp").exists()


def test_a_folder(poses, folder, tmp_path):
    found = poses(folder, "-o", tmp_path / "out")
    assert [round(keypoints[0, 0] / 30) for keypoints, _ in found] == [3, 1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a.jpg", "b.png"}
    before, after = (cv2.imread(str(place / "b.png")) for place in (folder, tmp_path / "out"))
    assert before.shape == after.shape
    assert (before != after).any()


def test_a_folder_without_images(refused, dots_file, tmp_path):
    assert "expected a folder with images or videos" in refused("predict", dots_file, tmp_path)


def test_outputs_that_cannot_be(refused, dots_file, folder, tmp_path):
    start = ("predict", dots_file, folder)
    assert "expected a folder for 2 images" in refused(*start, "-o", tmp_path / "one.png")
    assert "expected a new file" in refused(*start, "-o", folder)
    twice = (*start, folder / "a.jpg", "-o", tmp_path / "out")
    assert "found two images of that name" in refused(*twice)
    assert "expected a name that ends in" in refused("predict", dots_file, folder / "a.jpg", "-o", "a.mp4")
    assert not (tmp_path / "out").exists()


def test_the_table_names_speed_and_what_is_least_sure(dots_file, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(folder / "b.png", dots(128, 128, [(30, 30), (60, 60), (60, 60)], 7))  # blue covers green
    assert main(["predict", str(dots_file), folder.name, "-o", "out"]) == 0
    text = capsys.readouterr().out
    assert "2 frames," in text
    assert "frames per second" in text
    assert "right_hand" in text.splitlines()[3]


def test_no_drawing_without_output(poses, folder, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    poses(folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_only_what_the_extra_cli_holds_is_imported(dots_file, folder):
    code = (
        "import sys; from bitfactor.cli import main; assert main(sys.argv[1:]) == 0\n"
        "print([m for m in ('torch', 'matplotlib', 'sklearn', 'scipy', 'h5py') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, "predict", str(dots_file), str(folder), "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines()[-1] == "[]"
    assert len(json.loads(printed[: printed.rindex("[")])["poses"]) == 2
