"""Skeletons are drawn where they are, paler where the network is less sure."""

import numpy as np
import pytest

from bitfactor.format import Skeleton
from bitfactor.pose.draw import COLOURS, draw_skeleton, side_of

SKELETON = Skeleton(("left_hand", "r_hand", "head"), ((0, 1),), ((0, 2), (1, 2)))
GREY = np.full((120, 160, 3), 128, np.uint8)
JOINTS = np.array([[30.0, 90.0], [130.0, 90.0], [80.0, 30.0]])
MIDDLES = {"left": (55, 60), "right": (105, 60)}  # of the limbs


def draw(confidence, keypoints=JOINTS, image=GREY):
    return draw_skeleton(image, keypoints, np.array(confidence, float), SKELETON)


@pytest.mark.parametrize(
    ("names", "side"),
    [
        (("left_hip",), "left"),
        (("r_wrist", "thorax"), "right"),
        (("l_hip", "right_hip"), "middle"),
        (("pelvis", "thorax"), "middle"),
    ],
)
def test_sides(names, side):
    assert side_of(*names) == side


def test_limbs_have_the_colours_of_their_side():
    drawn = draw([1, 1, 1])
    for side, (x, y) in MIDDLES.items():
        assert np.abs(drawn[y, x].astype(int) - COLOURS[side]).max() <= 2


def test_the_image_is_left_as_it_was_and_only_changed_near_the_skeleton():
    image = GREY.copy()
    drawn = draw([1, 1, 1], image=image)
    assert (image == 128).all()
    changed = (drawn != 128).any(2)
    assert 0.01 < changed.mean() < 0.2
    assert not changed[100:].any()
    assert not changed[80:, 60:100].any()


def test_less_sure_is_paler_and_smaller():
    strength = [np.abs(draw([c] * 3).astype(int) - 128).sum() for c in (0, 0.3, 0.6, 1)]
    assert 0 < strength[0] < strength[-1]
    assert strength == sorted(strength)


def test_a_limb_is_as_sure_as_its_less_sure_end():
    x, y = MIDDLES["left"]
    pale, strong = (np.abs(draw([c, 1, 1])[y, x].astype(int) - 128).sum() for c in (0.1, 1))
    assert pale < 0.5 * strong


def test_keypoints_that_are_unknown_are_left_out():
    keypoints = JOINTS.copy()
    keypoints[0] = np.nan
    drawn = draw([1, 1, 1], keypoints)
    assert (drawn[:, :40] == 128).all()
    assert (drawn[60, 105] != 128).any()
    assert (draw([1, 1, 1], np.full((3, 2), np.nan)) == 128).all()


@pytest.mark.parametrize("shift", [(-1000, 0), (0, 5000), (70, 0), (-60, -60)])
def test_a_skeleton_outside_or_partly(shift):
    drawn = draw([1, 1, 1], JOINTS + shift)
    assert drawn.shape == GREY.shape
    assert (drawn != 128).any() == (abs(shift[0]) < 100 and shift[1] < 100)


@pytest.mark.parametrize("scale", [0.25, 1, 10])
def test_lines_are_as_wide_as_fits_the_person(scale):
    """Of images at several sizes, about the same share is drawn on."""
    image = np.full((int(120 * scale), int(160 * scale), 3), 128, np.uint8)
    drawn = draw([1, 1, 1], JOINTS * scale, image)
    assert 0.02 < (drawn != 128).any(2).mean() < 0.45


def test_edges_are_smooth():
    """Between the background and the edge's dark there are levels in between."""
    row = draw([1, 1, 1])[60, 40:70, 0].astype(int)
    assert len(set(row)) > 4
