"""A skeleton: the joints that a pose network finds."""

from dataclasses import dataclass

from bitfactor.checks import check_fields
from bitfactor.errors import InputError


@dataclass(frozen=True)
class Skeleton:
    """Names of the joints, which of them swap when an image is mirrored, and which limbs connect them.

    `flip_pairs` and `edges` are pairs of indices into `joints`. A name that begins with `left` or `l_`, or
    with `right` or `r_`, tells the side.

    Raises
    ------
    InputError
        If there is no joint, a name stands twice, a pair names no joint, or a joint is in two flip pairs.

    Example
    -------
    >>> Skeleton(("left_hand", "right_hand", "head"), ((0, 1),), ((0, 2), (1, 2))).flipped
    (1, 0, 2)
    """

    joints: tuple[str, ...]
    flip_pairs: tuple[tuple[int, int], ...] = ()
    edges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, "skeleton.")
        if not self.joints:
            raise _bad("at least one joint", "none")
        if len(set(self.joints)) < len(self.joints):
            twice = next(name for name in self.joints if self.joints.count(name) > 1)
            raise _bad("each joint's name once", repr(twice) + " twice")
        for a, b in (*self.flip_pairs, *self.edges):
            if a == b or not (0 <= a < len(self.joints) and 0 <= b < len(self.joints)):
                raise _bad(
                    f"pairs of two different joints from 0 to {len(self.joints) - 1}", f"the pair {a}, {b}"
                )
        flipped = [joint for pair in self.flip_pairs for joint in pair]
        if len(set(flipped)) < len(flipped):
            raise _bad("each joint in at most one flip pair", f"{self.flip_pairs}")

    @property
    def flipped(self) -> tuple[int, ...]:
        """The order of the joints in a mirrored image."""
        partner = {a: b for pair in self.flip_pairs for a, b in (pair, pair[::-1])}
        return tuple(partner.get(joint, joint) for joint in range(len(self.joints)))


def _bad(expected: str, found: str) -> InputError:
    return InputError("skeleton", expected=expected, found=found, fix="correct its description")
