"""A skeleton mirrors its pairs, and an impossible one is refused."""

import pytest

from bitfactor.common.errors import InputError
from bitfactor.format import Skeleton


def test_a_mirrored_image_swaps_the_pairs_and_keeps_the_rest():
    skeleton = Skeleton(("left", "middle", "right"), flip_pairs=((0, 2),))
    assert skeleton.flipped == (2, 1, 0)


@pytest.mark.parametrize(
    ("keypoints", "flip_pairs", "edges", "words"),
    [
        (("a", "b", "a"), (), (), "'a' twice"),
        (("a", "b"), ((0, 2),), (), "the pair 0, 2"),
        (("a", "b"), (), ((1, 1),), "the pair 1, 1"),
        (("a", "b"), (), ((-1, 1),), "the pair -1, 1"),
        (("a", "b", "c"), ((0, 1), (1, 2)), (), "at most one flip pair"),
    ],
)
def test_an_impossible_skeleton_is_refused(keypoints, flip_pairs, edges, words):
    with pytest.raises(InputError, match=words):
        Skeleton(keypoints, flip_pairs, edges)
