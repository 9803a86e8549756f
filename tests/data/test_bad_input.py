"""Whatever is wrong with a directory or an argument is said in one sentence, before anything is done."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, CocoKeypoints, Digits, ImageFolder, Lsp, Mpii, Shards
from bitfactor.data.readers.check import check_data
from bitfactor.data.readers.instances import CropMovement

LOADERS = (Cifar10.load, CocoKeypoints.load, ImageFolder.load, Lsp.load, Mpii.load, Shards.load)


def refused(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert ": expected " in message
    assert "; " in message
    return message


@pytest.mark.parametrize("load", LOADERS)
def test_no_directory(load, tmp_path):
    assert "--data" in refused(load, None)
    assert "None" not in refused(load, tmp_path / "none")
    (tmp_path / "file").write_text("x")
    refused(load, tmp_path / "file")
    refused(load, tmp_path)
    assert "expected a path" in refused(load, 3)


OPTIONS = [
    ({"limit": 0}, "limit: expected 1 or more, found 0"),
    ({"limit": -1}, "limit: expected 1 or more, found -1"),
    ({"limit": 2.5}, "expected an integer or None, found 2.5"),
    ({"limit": True}, "expected an integer or None, found True"),
    ({"holdout": "valdation"}, "did you mean validation?"),
    ({"size": "32"}, "write 32 without quotes"),
    ({"size": -1}, "expected"),
    ({"workers": -1}, "workers: expected 0 or more"),
    ({"preset": "papr"}, "did you mean paper?"),
    ({"max_corrupt": 2.0}, "max_corrupt: expected a fraction"),
    ({"max_corrupt": float("nan")}, "expected a finite number"),
    ({"crop": 1}, "expected True or False"),
    ({"mirror": "no"}, "expected True or False"),
    ({"zoom": "none"}, "expected a finite number"),
    ({"sigma": float("nan")}, "expected a finite number"),
    ({"limt": 3}, "did you mean limit?"),
]


def known(load):
    """Return the options that a loader has, and one that none has."""
    return {*load.__func__.__wrapped__.__annotations__, *vars(load.__self__.defaults), "limt"}


CASES = [(load, options, said) for load in LOADERS for options, said in OPTIONS if {*options} <= known(load)]


def test_most_options_are_of_several_loaders():
    assert len(CASES) == 70


@pytest.mark.parametrize(("load", "options", "said"), CASES)
def test_options(load, options, said, places):
    assert said in refused(load, places[load.__self__], **options)


@pytest.fixture
def places(folder, cifar, shards, tmp_path_factory):
    """A sound directory of each data set."""
    tmp_path = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    keypoints = np.concatenate([rng.uniform(1, 40, (14, 2, 6)), np.ones((14, 1, 6))], 1)
    (tmp_path / "images").mkdir()
    for i in range(6):
        (tmp_path / "images" / f"im{i}.jpg").write_bytes(b"x")
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": keypoints})
    mpii = {
        "image": "a.jpg",
        "center": [9, 9],
        "scale": 1.0,
        "keypoints": [[5, 5]] * 16,
        "joints_vis": [1] * 16,
    }
    coco = {"image_id": 1, "keypoints": [5, 5, 2] * 17, "bbox": [0, 0, 10, 10]}
    for part in ("train", "valid", "val"):
        content = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [coco]}
        (tmp_path / "annot").mkdir(exist_ok=True)
        (tmp_path / "annot" / f"{part}.json").write_text(json.dumps([mpii]))
        (tmp_path / f"{part}.json").write_text(json.dumps(content))
    places = dict.fromkeys((Lsp, CocoKeypoints), tmp_path)
    (tmp_path / "mpii").mkdir()
    (tmp_path / "annot").rename(tmp_path / "mpii" / "annot")
    return {Cifar10: cifar()[0], ImageFolder: folder, Shards: shards(), Mpii: tmp_path / "mpii", **places}


@pytest.mark.parametrize("batch", [0, -4, 2.0, "8", True])
def test_batches_of_no_size(folder, cifar, batch):
    for data in (Digits.load(), Cifar10.load(cifar()[0]), ImageFolder.load(folder, size=32, workers=0)):
        for call in (
            data.steps,
            lambda size, d=data: list(d.train_batches(size, 0, 0)),
            lambda size, d=data: list(d.test_batches(size)),
        ):
            assert "batch_size: expected" in refused(call, batch)


@pytest.mark.parametrize(
    "options", [{"rotation": "30"}, {"zoom": 1.0}, {"mirror": "yes"}, {"rotation": 200.0}]
)
def test_movements(options):
    refused(CropMovement, **options)


def test_directories_of_images(folder, tmp_path, jpeg):
    def scan(*arguments):
        return refused(ImageFolder.load, *arguments)

    assert "found a file" in scan(folder / "train" / "cat" / "train0.jpg")
    assert "two or more classes, found cat" in scan(alone(tmp_path / "one", jpeg, "cat"))
    one_each = alone(tmp_path / "single", jpeg, "cat", "dog")
    assert "expected images to evaluate on, found 0" in scan(one_each)
    (folder / "train" / "mouse").mkdir()
    assert "no images in mouse" in scan(folder)
    assert "no images in mouse" in scan(folder / "train")


def alone(place, jpeg, *names):
    for name in names:
        (place / name).mkdir(parents=True)
        (place / name / "1.jpg").write_bytes(jpeg(1))
    return place


def test_an_unreadable_directory(folder, monkeypatch):
    scandir = os.scandir

    def refusing(place):
        if Path(place).name == "cat":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    for call in (ImageFolder.load, check_data):
        assert "train/cat: expected a directory that can be read, found Permission" in refused(call, folder)


@pytest.mark.parametrize("directory", [3, None, ["x"]])
def test_check_data(directory):
    assert "check_data(directory): expected" in refused(check_data, directory)


def test_check_data_of_a_file(tmp_path):
    (tmp_path / "x").write_text("x")
    assert "expected a directory, found a file" in refused(check_data, tmp_path / "x")
    assert "found no such directory" in refused(check_data, str(tmp_path / "y"))
    assert "known layouts" in refused(check_data, str(tmp_path))


def test_findings_print_and_convert(folder):
    findings = check_data(str(folder))
    assert "images, train" in str(findings)
    assert "no problems" in str(findings)
    assert findings.to_dict()["images"] == {"train": 20, "val": 6}
    assert "<pre>" in findings._repr_html_()
