"""Instances, or anything else with keypoints, in the JSON layout of COCO's keypoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton, paired
from bitfactor.data.readers.instances import Instances, need, read_json

_MARGIN = 1.25  # side of the crop / longer side of the box


def read_coco(path: Path, images: Path, skeleton: Skeleton) -> Instances:
    """Read those annotations of a COCO file that have a labelled keypoint; crowds are left out.

    A person's crop is a square around the middle of `bbox`, 1.25 times as wide as its longer side, which is
    also the length by which errors are measured. Keypoints that are hidden but labelled (visibility 1) count
    as labelled.

    Parameters
    ----------
    path
        The file, with `images` and `annotations`.
    images
        The directory of the images.
    skeleton
        The keypoints, in the order of the file's.
    """
    files, keypoints, boxes = _annotated(path, images)
    count = len(skeleton.keypoints)
    other = next((rows for rows in keypoints if len(rows) != count), None)
    if other is not None:
        raise _bad(path, f"{len(other)} keypoints, while the skeleton has {count}")
    table = np.array(keypoints).reshape(-1, count, 3)
    longer = boxes[:, 2:].max(1, initial=0)
    return Instances(
        files,
        centre=boxes[:, :2] + boxes[:, 2:] / 2 - 0.5,
        side=_MARGIN * longer,
        keypoints=table[..., :2],
        labelled=table[..., 2] > 0,
        norm=longer,
    ).check(path)


def _annotated(
    path: Path, images: Path
) -> tuple[tuple[Path, ...], list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return images, keypoints (J, 3) and boxes (N, 4) of those that have a labelled keypoint."""
    listed, annotations = need(read_json(path), ("images", "annotations"), path)
    try:
        names = {image["id"]: images / image["file_name"] for image in listed}
        chosen = [a for a in annotations if not a.get("iscrowd", 0) and any(a["keypoints"][2::3])]
        files = tuple(names[a["image_id"]] for a in chosen)
        keypoints = [np.array(a["keypoints"], np.float64).reshape(-1, 3) for a in chosen]
        boxes = np.array([a["bbox"] for a in chosen], np.float64).reshape(len(chosen), 4)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(path, f"an entry that is not ({type(error).__name__}: {error})") from error
    return files, keypoints, boxes


def skeleton_in(path: Path) -> Skeleton | None:
    """Return the skeleton of a COCO file's only category with keypoints; None if it names none.

    Names that differ in left and right alone form the flip pairs.
    """
    content = read_json(path)
    categories = content.get("categories", []) if isinstance(content, Mapping) else []
    named = [c for c in categories if isinstance(c, Mapping) and c.get("keypoints")]
    if len(named) > 1:
        raise _bad(path, f"{len(named)} categories with keypoints")
    return _skeleton(path, named[0]) if named else None


def _skeleton(path: Path, category: Mapping[str, Any]) -> Skeleton:
    names = tuple(str(name) for name in category["keypoints"])
    try:
        edges = [(int(a) - 1, int(b) - 1) for a, b in category.get("skeleton", ())]
        return Skeleton(names, paired(names), tuple(edges))
    except (TypeError, ValueError) as error:
        raise _bad(path, f"a category whose skeleton is impossible ({error})") from error


def _bad(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="annotations as COCO's person_keypoints_*.json has them",
        found=found,
        fix="correct the file",
    )
