"""Instances and skeletons are read from annotations in COCO's format."""

import json
from pathlib import Path

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.data.readers.annotations import read_coco, skeleton_in
from bitfactor.pose import COCO

KEYPOINTS = [0, 0, 0, 30.5, 40, 1, 50, 60, 2, *[0] * 42]


def content(**changes):
    annotation = {"image_id": 7, "keypoints": KEYPOINTS, "bbox": [20, 30, 40, 80], "iscrowd": 0}
    return {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "annotations": [
            {**annotation, **changes},
            {**annotation, "keypoints": [0] * 51},
            {**annotation, "iscrowd": 1, "bbox": []},
        ],
    }


@pytest.fixture
def write(tmp_path):
    def write(described):
        (tmp_path / "instances.json").write_text(json.dumps(described))
        return tmp_path / "instances.json"

    return write


def test_labelled_instances(write):
    instances = read_coco(write(content()), Path("images"), COCO)
    assert instances.images == (Path("images/a.jpg"),)
    assert instances.centre.tolist() == [[39.5, 69.5]]
    assert instances.side.tolist() == [100]
    assert instances.norm.tolist() == [80]
    assert np.flatnonzero(instances.labelled[0]).tolist() == [1, 2]
    assert instances.keypoints[0, 1].tolist() == [30.5, 40]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ([], "expected a file with images, annotations"),
        ({"images": []}, "no 'annotations'"),
        ({"images": [], "annotations": []}, "nobody"),
        (content(image_id=9), "annotation number 0: no image of the id 9"),
        (content(keypoints=[1, 2, 2] * 3), "3 keypoints, while the skeleton has 17"),
        (content(keypoints=[1, 2, 2, 5]), "annotation number 0: cannot reshape"),
        (content(bbox=[1, 2], id=5), "annotation 5: cannot reshape"),
        (content(id=8, keypoints=[float("nan"), 1, 2, *[0] * 48]), "annotation 8: no finite box"),
        (content() | {"images": [{"id": 7}]}, "image 7, which is not .KeyError"),
        (
            content() | {"images": [{"id": 7, "file_name": "a.jpg"}, {"id": 7, "file_name": "b.jpg"}]},
            "two images of the id 7",
        ),
        (content(bbox=[20, 30, 0, 0]), "annotation number 0: no finite box or keypoints in a.jpg"),
    ],
)
def test_what_does_not_fit(write, described, words):
    with pytest.raises(InputError, match=words):
        read_coco(write(described), Path("images"), COCO)


def test_the_skeleton_of_a_category(write):
    cat = {"name": "cat", "keypoints": ["nose", "left_paw", "right_paw"], "skeleton": [[1, 2], [1, 3]]}
    skeleton = skeleton_in(write({"categories": [{"name": "tree"}, cat]}))
    assert skeleton.keypoints == ("nose", "left_paw", "right_paw")
    assert skeleton.flip_pairs == ((1, 2),)
    assert skeleton.edges == ((0, 1), (0, 2))
    assert skeleton_in(write(content())) is None


@pytest.mark.parametrize(
    ("categories", "words"),
    [
        ([{"keypoints": ["a"]}, {"keypoints": ["b"]}], "2 categories with keypoints, which differ"),
        ([{"keypoints": ["a", "a"]}], "impossible.*'a' twice"),
        ([{"keypoints": ["a", "b"], "skeleton": [[0, 1]]}], "impossible.*pair -1, 0"),
    ],
)
def test_an_impossible_skeleton_of_a_category(write, categories, words):
    with pytest.raises(InputError, match=words):
        skeleton_in(write({"categories": categories}))


def test_other_objects_are_left_out_and_counted(write):
    described = content(category_id=1)
    described["categories"] = [{"id": 1, "keypoints": list(COCO.keypoints)}, {"id": 2, "name": "tree"}]
    person = described["annotations"][0]
    described["annotations"] += [{**person, "category_id": 2}, {"id": 4, "image_id": 7, "category_id": 1}]
    with pytest.warns(UserWarning, match="left out: 1 without keypoints and 1 of other categories"):
        assert len(read_coco(write(described), Path("images"), COCO)) == 1


def test_categories_of_the_same_keypoints_are_one(write):
    described = content()
    person = described["annotations"][0]
    described["annotations"] = [{**person, "category_id": 1}, {**person, "category_id": 2}]
    described["categories"] = [{"id": i, "keypoints": ["a", "b"]} for i in (1, 2)]
    path = write(described)
    assert skeleton_in(path).keypoints == ("a", "b")
    assert len(read_coco(path, Path("images"), COCO)) == 2


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/secret.jpg", "deeper/../../secret.jpg"])
def test_images_outside_of_their_directory(write, name):
    with pytest.raises(InputError, match="outside of images"):
        read_coco(write(content() | {"images": [{"id": 7, "file_name": name}]}), Path("images"), COCO)
