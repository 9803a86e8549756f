"""The skeletons of the data sets, and those that users describe."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton, paired


def skeleton_of(keypoints: str, *limbs: str) -> Skeleton:
    """Describe a skeleton by the keypoints' names, and limbs as chains of names.

    Names that differ in their side alone form a flip pair. Where a limb names `*_knee`, it stands for both
    sides.
    """
    names = tuple(keypoints.split())
    index = {name: i for i, name in enumerate(names)}
    edges = []
    for limb in limbs:
        for side in ("left", "right") if "*" in limb else ("",):
            chain = [index[name.replace("*", side)] for name in limb.split()]
            edges += list(pairwise(chain))
    return Skeleton(names, paired(names), tuple(edges))


MPII = skeleton_of(
    "right_ankle right_knee right_hip left_hip left_knee left_ankle pelvis thorax upper_neck head_top "
    "right_wrist right_elbow right_shoulder left_shoulder left_elbow left_wrist",
    "pelvis thorax upper_neck head_top",
    "thorax *_shoulder *_elbow *_wrist",
    "pelvis *_hip *_knee *_ankle",
)

LSP = skeleton_of(
    "right_ankle right_knee right_hip left_hip left_knee left_ankle "
    "right_wrist right_elbow right_shoulder left_shoulder left_elbow left_wrist neck head_top",
    "neck head_top",
    "neck *_shoulder *_elbow *_wrist",
    "*_shoulder *_hip *_knee *_ankle",
    "left_hip right_hip",
)

COCO = skeleton_of(
    "nose left_eye right_eye left_ear right_ear left_shoulder right_shoulder left_elbow right_elbow "
    "left_wrist right_wrist left_hip right_hip left_knee right_knee left_ankle right_ankle",
    "nose *_eye *_ear",
    "left_shoulder right_shoulder",
    "*_ear *_shoulder *_elbow *_wrist",
    "*_shoulder *_hip *_knee *_ankle",
    "left_hip right_hip",
)

SKELETONS = {"mpii": MPII, "lsp": LSP, "coco": COCO}


@checked
def read_skeleton(path: str | os.PathLike[str]) -> Skeleton:
    """Read a skeleton from a small JSON file: `keypoints`, and pairs of their names.

    Example
    -------
    The content of such a file; `edges` may be left out, and `flip_pairs` where the names tell the sides, as
    `left_paw`, `Left Paw`, `l_paw`, `paw.L` and `LeftPaw` do:

        {
          "keypoints": ["left_paw", "right_paw", "nose"],
          "flip_pairs": [["left_paw", "right_paw"]],
          "edges": [["left_paw", "nose"], ["right_paw", "nose"]]
        }

    Raises
    ------
    InputError
        If the file cannot be read, or does not describe a skeleton.
    """
    path = Path(path)
    try:
        described = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise _bad(path, getattr(error, "strerror", None) or f"text that is not JSON ({error})") from error
    if not isinstance(described, Mapping):
        raise _bad(path, "JSON that is not an object")
    unknown = set(described) - {"keypoints", "flip_pairs", "edges"}
    if unknown:
        raise _bad(path, f"the key {min(unknown)!r}")
    keypoints = described.get("keypoints")
    if (
        not isinstance(keypoints, list)
        or not keypoints
        or not all(isinstance(name, str) for name in keypoints)
    ):
        raise _bad(path, "no list of names under 'keypoints'")
    pairs = {key: _pairs(path, key, described.get(key, []), keypoints) for key in ("flip_pairs", "edges")}
    flipped = pairs["flip_pairs"] if "flip_pairs" in described else paired(keypoints)
    try:
        return Skeleton(tuple(keypoints), flipped, pairs["edges"])
    except InputError as error:
        raise _bad(path, f"one that is impossible ({error})") from error


def _pairs(path: Path, key: str, value: Any, keypoints: Sequence[str]) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise _bad(path, f"{key!r} that is not a list of pairs of names")
    strange = [name for pair in value for name in pair if name not in keypoints]
    if strange:
        raise _bad(path, f"{strange[0]!r} in {key!r}, which is not one of the keypoints")
    return tuple((keypoints.index(a), keypoints.index(b)) for a, b in value)


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected='JSON as in {"keypoints": [names], "flip_pairs": [[left, right]], "edges": [[a, b]]}',
        found=found,
        fix="correct the file",
    )
