"""A skeleton: the keypoints that a pose network finds."""

from dataclasses import dataclass

from bitfactor.common.checks import check_fields
from bitfactor.common.errors import InputError


@dataclass(frozen=True)
class Skeleton:
    """Names of the keypoints, which of them swap when an image is mirrored, and which limbs connect them.

    `flip_pairs` and `edges` are pairs of indices into `keypoints`. A name that begins with `left` or `l_`, or
    with `right` or `r_`, tells the side.

    Raises
    ------
    InputError
        If there is no keypoint, a name stands twice, a pair names no keypoint, or a keypoint is in two flip
        pairs.

    Example
    -------
    >>> Skeleton(("left_hand", "right_hand", "head"), ((0, 1),), ((0, 2), (1, 2))).flipped
    (1, 0, 2)
    """

    keypoints: tuple[str, ...]
    flip_pairs: tuple[tuple[int, int], ...] = ()
    edges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "skeleton.")
        if not self.keypoints:
            raise _bad("at least one keypoint", "none")
        if len(set(self.keypoints)) < len(self.keypoints):
            twice = next(name for name in self.keypoints if self.keypoints.count(name) > 1)
            raise _bad("each keypoint's name once", repr(twice) + " twice")
        for a, b in (*self.flip_pairs, *self.edges):
            if a == b or not (0 <= a < len(self.keypoints) and 0 <= b < len(self.keypoints)):
                raise _bad(
                    f"pairs of two different keypoints from 0 to {len(self.keypoints) - 1}",
                    f"the pair {a}, {b}",
                )
        flipped = [keypoint for pair in self.flip_pairs for keypoint in pair]
        if len(set(flipped)) < len(flipped):
            raise _bad("each keypoint in at most one flip pair", f"{self.flip_pairs}")

    @property
    def flipped(self) -> tuple[int, ...]:
        """The order of the keypoints in a mirrored image."""
        partner = {a: b for pair in self.flip_pairs for a, b in (pair, pair[::-1])}
        return tuple(partner.get(keypoint, keypoint) for keypoint in range(len(self.keypoints)))


def _bad(expected: str, found: str) -> InputError:
    return InputError("skeleton", expected=expected, found=found, fix="correct its description")
