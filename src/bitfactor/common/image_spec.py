"""How an image becomes the input of a network, and the keypoints that a pose network finds."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bitfactor.common.checks import check_fields
from bitfactor.common.errors import InputError


@dataclass(frozen=True)
class Skeleton:
    """Names of the keypoints, which of them swap when an image is mirrored, and which limbs connect them.

    `flip_pairs` and `edges` are pairs of indices into `keypoints`. `paired` finds
    the flip pairs by name.

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


Sided = tuple[tuple[str, ...], tuple[str, ...]]
_SIDES = {"left": "left", "l": "left", "right": "right", "r": "right"}
_OTHER = {"left": "right", "right": "left"}
_BORDERS = re.compile(  # of words that stand side by side: leftEye, LEye, eye2, lefteye, eyeleft
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)"
    r"|(?i:(?<=\bleft)(?=[a-z])|(?<=\bright)(?=[a-z])|(?<=[a-z])(?=left\b|right\b))"
)


def sided(name: str) -> Sided:
    """Return the sides that a keypoint's name tells, in order, and its other words."""
    words = re.split(r"[\W_]+", _BORDERS.sub(" ", name.replace("_", " ")))
    lower = [word.lower() for word in words if word]
    return (
        tuple(_SIDES[word] for word in lower if word in _SIDES),
        tuple(word for word in lower if word not in _SIDES),
    )


def paired(keypoints: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the flip pairs: indices of keypoints whose names differ in all their sides, and only there."""
    places: dict[Sided, list[int]] = {}
    for i, name in enumerate(keypoints):
        places.setdefault(sided(name), []).append(i)
    pairs = (
        (own, places.get((tuple(_OTHER[side] for side in sides), rest), []))
        for (sides, rest), own in places.items()
        if sides[:1] == ("left",)
    )
    return tuple((*own, *other) for own, other in pairs if len(own) == len(other) == 1)  # type: ignore[misc]


def unpaired(skeleton: Skeleton) -> str:
    """Return why mirrored images would mislead a network that learns these keypoints, or nothing."""
    found = {*chain.from_iterable(skeleton.flip_pairs)}
    alone = [name for i, name in enumerate(skeleton.keypoints) if i not in found and sided(name)[0]]
    if alone:
        return f"{alone[0]!r} has no partner on the other side"
    return "" if found else "no two keypoints are called left and right"


def _bad(expected: str, found: str) -> InputError:
    return InputError("skeleton", expected=expected, found=found, fix="correct its description")


@dataclass(frozen=True)
class InputSpec:
    """How an image becomes the input: resized, centre-cropped, then (x / 255 - mean) / std.

    `size` and `resize` are (height, width) in pixels; with `keep_aspect` an image is resized until it just
    covers `resize`, in its own proportions. `mean` and `std` have one entry per channel: one for grey
    images, three for RGB, as many as there are for arrays.
    """

    size: tuple[int, int]
    resize: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    keep_aspect: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "input_spec.")
        if not len(self.mean) == len(self.std) > 0:
            raise InputError(
                "input_spec",
                expected="mean and std with one entry per channel",
                found=f"{len(self.mean)} and {len(self.std)}",
                fix="give both for each channel",
            )
        if min(self.std) <= 0:
            raise InputError(
                "input_spec.std",
                expected="values above 0",
                found=str(self.std),
                fix="1 leaves a channel as it is",
            )
        if max(self.mean) > 1 or max(self.std) > 1:
            warnings.warn(
                f"input_spec: mean {self.mean} and std {self.std} are of pixels from 0 to 1, as in "
                "(x / 255 - mean) / std; divide those of 0 to 255 by 255",
                stacklevel=4,
            )
        if min(self.size) < 1:
            raise InputError(
                "input_spec.size", expected="1 pixel or more", found=str(self.size), fix="change it"
            )
        if any(r < s for r, s in zip(self.resize, self.size, strict=True)):
            raise InputError(
                "input_spec.resize",
                expected=f"at least the size {self.size}, which is cut out of it",
                found=str(self.resize),
                fix="make it as large",
            )

    @property
    def whole(self) -> "InputSpec":
        """The same without a margin and without a cut: all of an image becomes the input."""
        return replace(self, resize=self.size, keep_aspect=False)

    @property
    def of_images(self) -> bool:
        """Whether it is of what files of images hold: one channel, or three."""
        return len(self.mean) in (1, 3)
