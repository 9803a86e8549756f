"""Where COCO's annotations are looked for. (Their content: tests/pose/test_coco.py.)"""

import json

import pytest

from bitfactor.common.errors import InputError
from bitfactor.data import CocoKeypoints
from bitfactor.pose import COCO

PAWS = ["left_paw", "right_paw", "nose"]


def write(path, keypoints, category=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [{"image_id": 1, "keypoints": [5, 5, 2] * keypoints, "bbox": [0, 0, 10, 10]}],
    }
    path.write_text(json.dumps(content | ({"categories": [category]} if category else {})))


def test_official_layout(tmp_path):
    for part in ("train", "val"):
        write(tmp_path / "annotations" / f"person_keypoints_{part}2017.json", 17)
    data = CocoKeypoints.load(tmp_path)
    assert data.skeleton == COCO
    assert data.train.images == (tmp_path / "train2017" / "a.jpg",)
    assert data.test.images == (tmp_path / "val2017" / "a.jpg",)


def test_a_skeleton_of_ones_own(tmp_path):
    for part in ("train", "val"):
        write(tmp_path / f"{part}.json", 3, {"keypoints": PAWS, "skeleton": [[1, 3]]})
    data = CocoKeypoints.load(tmp_path)
    assert data.skeleton.keypoints == tuple(PAWS)
    assert data.skeleton.edges == ((0, 2),)
    (tmp_path / "skeleton.json").write_text(
        json.dumps({"keypoints": PAWS, "edges": [["left_paw", "right_paw"]]})
    )
    assert CocoKeypoints.load(tmp_path).skeleton.edges == ((0, 1),)


def test_coco_s_own_category_keeps_the_limbs_of_ours(tmp_path):
    for part in ("train", "val"):
        write(tmp_path / f"{part}.json", 17, {"keypoints": list(COCO.keypoints), "skeleton": [[1, 2]]})
    assert CocoKeypoints.load(tmp_path).skeleton == COCO


def test_a_skeleton_that_does_not_fit(tmp_path):
    for part in ("train", "val"):
        write(tmp_path / f"{part}.json", 3)
    with pytest.raises(InputError, match="3 keypoints, while the skeleton has 17"):
        CocoKeypoints.load(tmp_path)


def described(directory, names):
    for part in ("train", "val"):
        write(directory / f"{part}.json", len(names), {"keypoints": names})


def test_keypoints_whose_sides_are_spelled_otherwise_swap(tmp_path):
    described(tmp_path, ["Left Paw", "Right Paw", "nose"])
    data = CocoKeypoints.load(tmp_path)
    assert (data.skeleton.flip_pairs, data.movement.mirror) == (((0, 1),), True)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["Pfote links", "Pfote rechts"], "no two keypoints are called left and right"),
        (["l_paw", "r_paw", "left_ear"], "'left_ear' has no partner"),
    ],
)
def test_where_sides_are_not_known_nothing_is_mirrored(tmp_path, names, words):
    described(tmp_path, names)
    with pytest.warns(UserWarning, match=words + ".*not mirrored; skeleton.json"):
        assert not CocoKeypoints.load(tmp_path).movement.mirror
    own = {"keypoints": names, "flip_pairs": [names[:2]]}
    (tmp_path / "skeleton.json").write_text(json.dumps(own))
    data = CocoKeypoints.load(tmp_path)
    assert (data.skeleton.flip_pairs, data.movement.mirror) == (((0, 1),), True)
