"""The true joints of MPII's validation people, in the file by which predictions are scored."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import checked
from bitfactor.errors import InputError
from bitfactor.pose.files import expect_file, need, read_mat

HEAD = 0.6
"""Size of a head / diagonal of its box."""


@dataclass(frozen=True)
class Truth:
    """True joints (N, 16, 2), which are labelled (N, 16), and the size of the heads (N,), in pixels."""

    joints: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    norm: NDArray[np.float64]


@checked
def read_truth(path: str | os.PathLike[str]) -> Truth:
    """Read `detections_our_format.mat`, or HRNet's `gt_valid.mat`, which holds the same.

    Coordinates are counted from 1, as predictions that are published are.

    Raises
    ------
    InputError
        If the file cannot be read, or holds something else.
    """
    path = Path(path)
    expect_file(path)
    if path.suffix.lower() != ".mat":
        raise _bad(path, f"the ending {path.suffix!r}")
    names = ("pos_gt_src", "jnt_missing", "headboxes_src")
    joints, missing, heads = (np.asarray(array) for array in need(read_mat(path), names, path))
    n = joints.shape[-1]
    shapes = {"pos_gt_src": (16, 2, n), "jnt_missing": (16, n), "headboxes_src": (2, 2, n)}
    for name, array in zip(names, (joints, missing, heads), strict=True):
        if array.shape != shapes[name]:
            raise _bad(path, f"{name} of shape {array.shape}")
    size = head_size(heads.transpose(2, 0, 1))
    return Truth(joints.transpose(2, 0, 1).astype(np.float64), missing.T == 0, size)


def head_size(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the size of heads whose boxes are given by two corners, (N, 2, 2) -> (N,)."""
    return np.asarray(HEAD * np.linalg.norm(boxes[:, 1] - boxes[:, 0], axis=1), np.float64)


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="detections_our_format.mat with pos_gt_src (16, 2, N), jnt_missing (16, N), "
        "headboxes_src (2, 2, N)",
        found=found,
        fix="give the file that is published with MPII's validation split",
    )
