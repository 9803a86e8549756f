"""Predicted joints of MPII's validation instances, as others publish them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.checks import checked
from bitfactor.errors import InputError
from bitfactor.pose.files import read, unreadable

_NAMES = ("preds", "pred", "predictions", "pos_pred_src", "keypoints", "joints")


@checked
def read_predictions(path: str | os.PathLike[str], joints: int = 16) -> NDArray[np.float64]:
    """Return the joints (N, J, 2), x and y, that a .mat, .h5 or .json file holds.

    They stand under `preds` or a name like it, or are all that a JSON file holds; as (N, J, 2), or with a
    third column of confidences, or as (2, J, N) or (J, 2, N), the older ways of Matlab.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no such thing.
    """
    path = Path(path)
    content = read(path)
    return _instances_first(_array(content, path), joints, path)


def _array(content: Any, path: Path) -> NDArray[np.float64]:
    if isinstance(content, Mapping):
        name = next((name for name in _NAMES if name in content), None)
        if name is None:
            held = ", ".join(map(repr, list(content)[:8])) or "nothing"
            raise _bad(path, held)
        content = content[name]
    elif isinstance(content, list) and content and isinstance(content[0], Mapping):
        name = next((name for name in _NAMES if name in content[0]), None)
        if name is None or not all(isinstance(person, Mapping) and name in person for person in content):
            raise _bad(path, f"instances with {', '.join(map(repr, list(content[0])[:8]))}")
        content = [person[name] for person in content]
    try:
        return np.asarray(content, np.float64)
    except (TypeError, ValueError) as error:
        raise unreadable(path, error) from error


def _instances_first(array: NDArray[np.float64], joints: int, path: Path) -> NDArray[np.float64]:
    if array.ndim == 2 and array.shape[1] in (2 * joints, 3 * joints):  # COCO's flat lists
        array = array.reshape(len(array), joints, -1)
    if array.ndim == 3:
        if array.shape[1] == joints and array.shape[2] in (2, 3):
            return array[..., :2]
        if array.shape[:2] == (2, joints):
            return array.transpose(2, 1, 0)
        if array.shape[:2] == (joints, 2):
            return array.transpose(2, 0, 1)
    raise _bad(path, f"an array of shape {array.shape}")


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="predicted joints of shape (N, 16, 2), (2, 16, N) or (16, 2, N), named preds",
        found=found,
        fix="write them so",
    )
