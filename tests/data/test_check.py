"""`check` finds everything that can be wrong with a data set."""

import json
import shutil

import cv2
import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data import Cifar10, Cifar100, ImageFolder
from bitfactor.data.readers.check import check_data, images_in
from bitfactor.data.readers.evaluation_set import Wanted


def look(directory):
    return check_data(directory)


def test_a_sound_folder(folder):
    findings = look(folder)
    assert findings.problems == findings.notes == {}
    assert findings.images == {"train": 20, "val": 6}
    assert findings.classes == 2
    assert findings.sizes == {"height": (48, 48, 48), "width": (64, 64, 64)}
    assert findings.modes == {"RGB": 26}


def test_progress_ends_at_the_number_of_images(folder):
    told = []
    check_data(folder, lambda *numbers: told.append(numbers))
    assert told[-1] == (26, 26)


def test_everything_that_can_be_wrong_with_a_folder(folder, jpeg, smooth):
    train, val = folder / "train", folder / "val"
    (train / "cat" / "text.jpg").write_bytes(b"text")
    (train / "cat" / "cut.jpg").write_bytes(jpeg(50)[:-300])
    (train / "mouse").mkdir()
    (train / "cat" / "up").symlink_to("..")
    (train / "cat" / "notes.txt").write_text("x")
    (val / "bird").mkdir()
    (val / "bird" / "b.jpg").write_bytes(jpeg(51, 100, 30))
    shutil.copy(train / "cat" / "train0.jpg", train / "dog" / "same.jpg")
    shutil.copy(train / "cat" / "train2.jpg", val / "cat" / "leak.jpg")
    shutil.copy(train / "cat" / "train4.jpg", train / "cat" / "again.jpg")
    cv2.imwrite(str(train / "cat" / "deep.png"), smooth(52).astype(np.uint16))
    cv2.imwrite(str(train / "dog" / "grey.jpg"), smooth(53)[..., 0])
    cv2.imwrite(str(train / "stray.png"), smooth(54))
    findings = look(folder)
    assert {kind: len(names) for kind, names in findings.problems.items()} == {
        "classes without images": 1,
        "links that lead back up": 1,
        "classes that are missing in val": 1,
        "classes that are in val alone": 1,
        "corrupt images": 2,
        "one image in two classes": 1,
        "training images in the test set": 1,
    }
    assert "mouse" in findings.problems["classes without images"][0]
    assert {name.split(":")[0].split("/")[-1] for name in findings.problems["corrupt images"]} == {
        "cut.jpg",
        "text.jpg",
    }
    assert set(findings.notes) == {
        "files that are no images by their names",
        "images that are there twice",
        "images that lie in no class",
    }
    assert findings.modes == {"RGB": 30, "RGB, 16 bit": 1, "grey": 1}
    assert findings.sizes == {"height": (48, 48, 100), "width": (30, 64, 64)}


def test_a_folder_without_parts(folder):
    findings = look(folder / "train")
    assert findings.images == {"train": 20}
    assert findings.problems == {}


def test_cifar(cifar):
    directory, _, _ = cifar()
    for place in (directory, directory.parent):
        findings = look(place)
        assert (findings.layout, findings.classes) == ("Cifar10", 10)
        assert findings.images == {"train": 200, "test": 40}
        assert findings.problems == {}
    (directory / "data_batch_2").write_bytes(b"text")
    (directory / "test_batch").unlink()
    findings = look(directory)
    assert findings.images == {"train": 160}
    assert ["data_batch_2" in findings.problems["unusable files"][0]] == [True]
    assert ["test_batch" in findings.problems["unusable files"][1]] == [True]
    shutil.rmtree(directory)
    directory, _, _ = cifar(Cifar100)
    assert look(directory).layout == "Cifar100"
    (directory / Cifar100.layout.names).write_bytes(b"")
    assert "meta: " in look(directory).problems["unusable files"][0]


def test_shards(shards, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = shards()
    findings = look(directory)
    assert (findings.images, findings.problems) == ({"train": 32, "val": 7}, {})
    shutil.copy(directory / "train-0.tar", directory / "train-1.tar")
    (directory / "train-2.tar").write_bytes(b"text")
    findings = look(directory)
    assert ["train-2.tar" in problem for problem in findings.problems["unusable shards"]] == [True]
    assert len(findings.notes["images that are there twice"]) == 7
    assert len(findings.notes["names that stand in train more than once"]) == 7


@pytest.fixture
def mpii(tmp_path, jpeg):
    """Write HRNet's layout: people by the images that show them -> the directory."""

    def write(train, test):
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "annot").mkdir(exist_ok=True)
        for name, images in (("train", train), ("valid", test)):
            people = [
                {
                    "image": f"{image}.jpg",
                    "center": [32, 24],
                    "scale": 0.2,
                    "joints": np.random.default_rng(image).uniform(5, 40, (16, 2)).tolist(),
                    "joints_vis": [1] * 16,
                }
                for image in images
            ]
            (tmp_path / "annot" / f"{name}.json").write_text(json.dumps(people))
            for image in images:
                (tmp_path / "images" / f"{image}.jpg").write_bytes(jpeg(image))
        return tmp_path

    return write


def test_mpii(mpii):
    findings = look(mpii([0, 0, 1, 2], [3, 4]))
    assert findings.layout == "MPII"
    assert (findings.images, findings.instances) == ({"train": 3, "test": 2}, {"train": 4, "test": 2})
    assert findings.problems == findings.notes == {}
    assert "instances, train" in str(findings)
    assert "classes" not in str(findings)


def test_everything_that_can_be_wrong_with_mpii(mpii, jpeg):
    directory = mpii([0, 0, 1, 2, 9], [2, 3, 4, 5])
    images = directory / "images"
    (images / "1.jpg").unlink()
    (images / "4.jpg").write_bytes(jpeg(4)[:-300])
    (images / "5.jpg").write_bytes(jpeg(0))
    (images / "9.jpg").write_bytes(jpeg(9, 20, 64))
    findings = look(directory)
    assert findings.images == {"train": 3, "test": 3}
    assert findings.problems.keys() == {
        "images that are missing",
        "corrupt images",
        "training images in the test set",
    }
    assert "1.jpg" in findings.problems["images that are missing"][0]
    assert "4.jpg" in findings.problems["corrupt images"][0]
    assert findings.notes["images that show instances of both parts"] == [str(images / "2.jpg")]
    ((outside),) = findings.notes["labelled keypoints outside of their image"]
    assert outside.startswith(f"train 4, in {images / '9.jpg'}: ")
    (directory / "annot" / "valid.json").write_text("[{}]")
    assert "valid.json" in look(directory).problems["unusable annotations"][0]
    (directory / "annot" / "valid.json").unlink()
    assert "train.json and valid.json" in look(directory).problems["unusable annotations"][0]


def test_leeds_sports_pose(tmp_path, jpeg):
    keypoints = np.random.default_rng(0).uniform(2, 40, (4, 14, 2))
    labelled = np.ones((4, 14, 1))
    labelled[1, 1:] = labelled[3, 3] = 0
    table = np.concatenate([keypoints, labelled], 2).transpose(1, 2, 0)
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": table})
    (tmp_path / "images").mkdir()
    for i in range(1, 5):
        (tmp_path / "images" / f"im0000{i}.jpg").write_bytes(jpeg(i))
    findings = look(tmp_path)
    assert (findings.layout, findings.instances) == ("Leeds Sports Pose", {"train": 2, "test": 2})
    assert findings.problems == {}
    assert [notes[0].split(",")[0] for notes in findings.notes.values()] == ["train 1", "test 1"]


def test_keypoints_of_coco(tmp_path, jpeg):
    (tmp_path / "images").mkdir()
    for part in ("train", "val"):
        (tmp_path / "images" / f"{part}.jpg").write_bytes(jpeg(len(part)))
        person = {"image_id": 1, "bbox": [0, 0, 40, 40], "keypoints": [20, 20, 2] * 17, "iscrowd": 0}
        content = {
            "images": [{"id": 1, "file_name": f"{part}.jpg"}],
            "annotations": [person],
            "categories": [],
        }
        (tmp_path / f"{part}.json").write_text(json.dumps(content))
    findings = look(tmp_path)
    assert (findings.layout, findings.images) == ("COCO keypoints", {"train": 1, "test": 1})
    assert findings.problems == findings.notes == {}


@pytest.mark.parametrize("content", [None, "a.jpg", "only/a.jpg", "a/1.txt"])
def test_unknown_layouts(tmp_path, jpeg, content):
    if content:
        (tmp_path / content).parent.mkdir(exist_ok=True)
        (tmp_path / content).write_bytes(jpeg(0))
    with pytest.raises(
        InputError, match=f"known layouts .*{Cifar10.layout.folder}.*shards.json.*found an unknown"
    ):
        look(tmp_path)
    with pytest.raises(InputError, match="expected a directory, found no such directory"):
        look(tmp_path / "none")


def test_images_of_each_class_in_each_part(folder, shards):
    assert look(folder).by_class == {"cat": {"train": 10, "val": 3}, "dog": {"train": 10, "val": 3}}
    lines = [line.split() for line in str(look(folder)).splitlines()]
    assert ["images", "of", "train", "val"] in lines
    assert ["cat", "10", "3"] in lines
    findings = look(shards(trained=(7,), held=(2,)))
    assert findings.by_class["a"] == {"train": 3, "val": 0}
    assert findings.problems == {"classes that are missing in val": ["a"]}


def test_the_rarest_of_many_classes_are_shown(cifar):
    directory, _, numbers = cifar(Cifar100)
    findings = look(directory)
    assert sum(counts["train"] for counts in findings.by_class.values()) == (numbers[:-40] >= 0).sum()
    assert "... and 50 classes with more; --json lists all" in str(findings)


def test_classes_of_very_different_size(folder, jpeg):
    for i in range(6):
        (folder / "val" / "cat" / f"more{i}.jpg").write_bytes(jpeg(200 + i))
    assert look(folder).notes == {}
    for i in range(191):
        (folder / "train" / "dog" / f"more{i}.jpg").write_bytes(jpeg(300 + i))
    told = look(folder).notes["classes that differ beyond 20 to 1"]
    assert told == ["train: 201 images of dog, 10 of cat"]


def test_names_of_classes_are_one_however_unicode_writes_them(folder):
    apart, whole = "cafe\u0301", "caf\u00e9"
    (folder / "train" / "cat").rename(folder / "train" / apart)
    (folder / "val" / "cat").rename(folder / "val" / whole)
    (folder / "train" / whole).mkdir()
    shutil.move(folder / "train" / apart / "train0.jpg", folder / "train" / whole / "train0.jpg")
    findings = look(folder)
    assert findings.problems == findings.notes == {}
    assert findings.by_class[whole] == {"train": 10, "val": 3}
    data = ImageFolder.load(folder, size=32, workers=0)
    assert (data.labels, len(data.train), len(data.test)) == ((whole, "dog"), 20, 6)
    found = images_in(folder, Wanted("net", (apart, "dog"), data.input_spec))
    assert (found.total, found.notes) == (6, ())
