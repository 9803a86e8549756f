"""The known skeletons mirror as their data sets say, and a user's own is read."""

import json

import pytest

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import paired
from bitfactor.pose import COCO, LSP, MPII, SKELETONS, read_skeleton
from bitfactor.pose.draw import side_of
from bitfactor.pose.skeletons import skeleton_of


def pairs(skeleton):
    return {frozenset(pair) for pair in skeleton.flip_pairs}


def test_flip_pairs_are_those_of_the_data_sets():
    mpii = [(0, 5), (1, 4), (2, 3), (10, 15), (11, 14), (12, 13)]
    lsp = [(0, 5), (1, 4), (2, 3), (6, 11), (7, 10), (8, 9)]
    coco = [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)]
    for skeleton, expected in ((MPII, mpii), (LSP, lsp), (COCO, coco)):
        assert pairs(skeleton) == {frozenset(pair) for pair in expected}


@pytest.mark.parametrize("name", SKELETONS)
def test_limbs_connect_all_keypoints_and_mirror_onto_themselves(name):
    skeleton = SKELETONS[name]
    reached = {0}
    for _ in skeleton.keypoints:
        reached |= {keypoint for edge in skeleton.edges for keypoint in edge if reached & set(edge)}
    assert reached == set(range(len(skeleton.keypoints)))
    edges = {frozenset(edge) for edge in skeleton.edges}
    assert edges == {frozenset(skeleton.flipped[keypoint] for keypoint in edge) for edge in edges}


def test_sides_of_a_limb():
    skeleton = skeleton_of("left_hand right_hand head", "*_hand head")
    assert skeleton.edges == ((0, 2), (1, 2))
    assert skeleton.flip_pairs == ((0, 1),)


def test_a_skeleton_of_ones_own(tmp_path):
    path = tmp_path / "cat.json"
    path.write_text(json.dumps({"keypoints": ["l_paw", "r_paw", "nose"], "flip_pairs": [["l_paw", "r_paw"]]}))
    skeleton = read_skeleton(path)
    assert skeleton.keypoints == ("l_paw", "r_paw", "nose")
    assert skeleton.flipped == (1, 0, 2)
    assert skeleton.edges == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"keypoints": []}', "no list of names"),
        ('{"keypoints": ["a", 1]}', "no list of names"),
        ('{"keypoints": ["a"], "limbs": []}', "the key 'limbs'"),
        ('{"keypoints": ["a", "b"], "edges": [["a", "c"]]}', "'c' in 'edges'"),
        ('{"keypoints": ["a", "b"], "edges": ["ab"]}', "not a list of pairs"),
        ('{"keypoints": ["a", "b"], "flip_pairs": [["a", "a"]]}', "impossible"),
        ('{"keypoints": ["a", "a"]}', "'a' twice"),
    ],
)
def test_what_is_no_skeleton_is_named(tmp_path, content, words):
    path = tmp_path / "cat.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words):
        read_skeleton(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_skeleton(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Left Eye", "Right Eye"),
        ("l_eye", "r_eye"),
        ("eye_L", "eye_R"),
        ("eye.l", "eye.r"),
        ("LeftEye", "RightEye"),
        ("LEye", "REye"),
        ("lefteye", "righteye"),
        ("EYE-LEFT", "EYE-RIGHT"),
        ("eye_l2", "eye_r2"),
        ("left_eye", "Eye (right)"),
        ("left_eye_right_corner", "right_eye_left_corner"),
    ],
)
def test_sides_are_known_however_they_are_spelled(left, right):
    assert paired(["nose", right, "lip", left, "rib"]) == ((3, 1),)
    assert (side_of(left), side_of(right), side_of("lip", "rib")) == ("left", "right", "middle")


def test_names_that_only_look_alike_are_no_pair():
    assert paired(["left_eye", "right_ear", "l_paw", "left_paw", "r_paw", "bright", "brow"]) == ()


def test_a_skeleton_of_ones_own_finds_its_pairs_unless_it_names_them(tmp_path):
    path, names = tmp_path / "cat.json", ["Left Paw", "Right Paw"]
    path.write_text(json.dumps({"keypoints": names}))
    assert read_skeleton(path).flip_pairs == ((0, 1),)
    path.write_text(json.dumps({"keypoints": names, "flip_pairs": []}))
    assert read_skeleton(path).flip_pairs == ()
