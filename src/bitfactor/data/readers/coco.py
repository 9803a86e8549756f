"""Instances, or anything else with keypoints, in the JSON layout of COCO's keypoints."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton, paired
from bitfactor.data.readers.instances import Instances, image_path, need, read_json

_MARGIN = 1.25  # side of the crop / longer side of the box


def read_coco(path: Path, images: Path, skeleton: Skeleton) -> Instances:
    """Read those annotations of a COCO file that have a labelled keypoint; crowds are left out.

    So are objects without keypoints and those of categories without; a warning tells how many.

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
    content = read_json(path)
    listed, annotations = need(content, ("images", "annotations"), path)
    shown = _images(path, listed, images)
    people = _people(path, content, annotations, shown, len(skeleton.keypoints))
    files = tuple(shown[image][0] for image, _, _ in people)
    table = np.array([keypoints for _, keypoints, _ in people]).reshape(-1, len(skeleton.keypoints), 3)
    boxes = np.array([box for _, _, box in people]).reshape(-1, 4)
    longer = boxes[:, 2:].max(1, initial=0)
    return Instances(
        files,
        centre=boxes[:, :2] + boxes[:, 2:] / 2 - 0.5,
        side=_MARGIN * longer,
        keypoints=table[..., :2],
        labelled=table[..., 2] > 0,
        norm=longer,
        annotated=dict(shown[image] for image, _, _ in people),
    ).check(path)


Floats = NDArray[np.float64]
Size = tuple[int, int]  # height and width


def _images(path: Path, listed: Any, images: Path) -> dict[Any, tuple[Path, Size | None]]:
    """Return an image's id -> its file, and its annotated size if there is one."""
    found: dict[Any, tuple[Path, Size | None]] = {}
    for number, image in enumerate(listed):
        try:
            told = image.get("height") and image.get("width")
            size = (int(image["height"]), int(image["width"])) if told else None
            entry = image_path(images, image["file_name"], path), size
            if found.setdefault(image["id"], entry)[0] != entry[0]:
                raise _bad(path, f"two images of the id {image['id']}")
        except _UNFIT as error:
            raise _bad(path, f"{_called('image', image, number)}, which is not ({_said(error)})") from error
    return found


def _people(
    path: Path, content: Any, annotations: Any, shown: Mapping[Any, Any], count: int
) -> list[tuple[Any, Floats, Floats]]:
    """Return image id, keypoints (J, 3) and box (4,) of those that have a labelled keypoint."""
    wanted = {category.get("id") for category in _with_keypoints(content)}
    people, others, without = list[tuple[Any, Floats, Floats]](), 0, 0
    for number, entry in enumerate(annotations):
        try:
            if wanted and entry.get("category_id") not in {*wanted, None}:
                others += 1
            elif "keypoints" not in entry:
                without += 1
            elif not entry.get("iscrowd", 0) and any(entry["keypoints"][2::3]):
                people.append(_person(entry, shown, count))
        except _UNFIT as error:
            raise _bad(path, f"{_called('annotation', entry, number)}: {_said(error)}") from error
    if others or without:
        left = f"{without:,} without keypoints and {others:,} of other categories"
        warnings.warn(f"{path}: objects are left out: {left}", stacklevel=2)
    return people


def _person(entry: Mapping[str, Any], shown: Mapping[Any, Any], count: int) -> tuple[Any, Floats, Floats]:
    if entry["image_id"] not in shown:
        raise ValueError(f"no image of the id {entry['image_id']}")
    keypoints = np.array(entry["keypoints"], np.float64).reshape(-1, 3)
    if len(keypoints) != count:
        raise ValueError(f"{len(keypoints)} keypoints, while the skeleton has {count}")
    box = np.array(entry["bbox"], np.float64).reshape(4)
    sound = np.isfinite(box).all() and box[2:].max() > 0
    if not sound or not np.isfinite(keypoints[keypoints[:, 2] > 0]).all():
        raise ValueError(f"no finite box or keypoints in {shown[entry['image_id']][0].name}")
    return entry["image_id"], keypoints, box


_UNFIT = (KeyError, TypeError, ValueError, AttributeError)  # what an entry of another form raises


def _said(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def _called(kind: str, entry: Any, number: int) -> str:
    known = isinstance(entry, Mapping) and "id" in entry
    return f"{kind} {entry['id']}" if known else f"{kind} number {number}"


def _with_keypoints(content: Any) -> list[Mapping[str, Any]]:
    categories = content.get("categories", []) if isinstance(content, Mapping) else []
    return [c for c in categories if isinstance(c, Mapping) and c.get("keypoints")]


def skeleton_in(path: Path) -> Skeleton | None:
    """Return the skeleton that a COCO file's categories with keypoints share; None if it names none.

    Names that differ in left and right alone form the flip pairs.
    """
    named = _with_keypoints(read_json(path))
    if any(category["keypoints"] != named[0]["keypoints"] for category in named):
        raise _bad(path, f"{len(named)} categories with keypoints, which differ")
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
