"""Where COCO's annotations are looked for. (Their content: tests/pose/test_coco.py.)"""

import json

import numpy as np
import pytest
from PIL import Image

from bitfactor.common.errors import InputError
from bitfactor.data import CocoKeypoints
from bitfactor.data.readers.check import check_data
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


def test_another_order_of_keypoints_in_val_is_refused(tmp_path):
    for part, names in (("train", PAWS), ("val", [PAWS[0], PAWS[2], PAWS[1]])):
        write(tmp_path / f"{part}.json", 3, {"keypoints": names})
    words = r"val.json: expected the keypoints right_paw, nose from number 2 on, found nose, right_paw"
    with pytest.raises(InputError, match=words):
        CocoKeypoints.load(tmp_path)


def test_a_skeleton_of_ones_own_may_rename_keypoints_but_not_reorder_them(tmp_path):
    described(tmp_path, PAWS)
    own = tmp_path / "skeleton.json"
    own.write_text(json.dumps({"keypoints": ["l_hand", "r_hand", "snout"]}))
    assert CocoKeypoints.load(tmp_path).skeleton.flip_pairs == ((0, 1),)
    own.write_text(json.dumps({"keypoints": PAWS[::-1]}))
    with pytest.raises(InputError, match=r"train.json: expected the keypoints nose"):
        CocoKeypoints.load(tmp_path)


def test_no_image_is_both_trained_and_validated_on(tmp_path):
    """Annotations of one image need not stand together."""
    described(tmp_path, PAWS)
    content = json.loads((tmp_path / "train.json").read_text())
    (person,) = content["annotations"]
    content["images"] = [{"id": i, "file_name": f"{i}.jpg"} for i in range(20)]
    content["annotations"] = [{**person, "image_id": i} for _ in range(3) for i in range(20)]
    (tmp_path / "train.json").write_text(json.dumps(content))
    data = CocoKeypoints.load(tmp_path, holdout="validation")
    assert (len(data.train), len(data.test)) == (54, 6)
    assert {image.name for image in data.test.images} == {"18.jpg", "19.jpg"}
    assert not {*data.train.images} & {*data.test.images}


def exif(turn):
    made = Image.Exif()
    made[0x0112] = turn
    return made


@pytest.mark.parametrize(
    ("told", "turn", "words"),
    [
        ((40, 30), 1, None),
        ((), 1, None),
        ((30, 40), 6, None),
        ((80, 60), 1, "expected 80 x 60 pixels, as annotated, found 40 x 30 pixels;"),
        (
            (40, 30),
            6,
            "expected 40 x 30 pixels, as annotated, found 30 x 40 pixels, an image that EXIF turns",
        ),
        ((40, 30), 3, "found 40 x 30 pixels, an image that EXIF turns"),
        ((), 8, "expected an image as it is stored, found 30 x 40 pixels, an image that EXIF turns"),
    ],
)
def test_images_that_are_not_as_annotated_are_refused(tmp_path, told, turn, words):
    described(tmp_path, PAWS)
    (tmp_path / "images").mkdir()
    pixels = np.zeros((30, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "images" / "a.jpg", exif=exif(turn))
    for part in ("train", "val"):
        content = json.loads((tmp_path / f"{part}.json").read_text())
        content["images"][0] |= dict(zip(("width", "height"), told, strict=False))
        (tmp_path / f"{part}.json").write_text(json.dumps(content))
    data = CocoKeypoints.load(tmp_path, size=32, workers=0)
    found = check_data(tmp_path).problems.get("images that are not as annotated", [])
    if words is None:
        assert len(list(data.train_batches(1, seed=0, epoch=0))) == 1
        assert not found
        return
    assert all(words in said for said in found)
    assert found
    for use in (lambda: list(data.train_batches(1, 0, 0)), lambda: data.test_image(0)):
        with pytest.raises(InputError, match="images/a.jpg: " + ".*" + words):
            use()
