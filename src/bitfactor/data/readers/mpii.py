"""MPII's annotations in the three forms in which they are passed around.

All of them count pixels from 1, as Matlab does; here pixel centres stand at whole numbers from 0. They differ
in what they hold. The official file and the JSON files have the person's centre and scale as annotated. The
HDF5 files of pose-hg-train have centre and scale of the crop (see `bitfactor.pose.mpii_box`), and positions
of neck and head cut to whole numbers. Joints that others predicted of the validation part are read here too.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import checked
from bitfactor.common.errors import InputError
from bitfactor.data.readers.instances import (
    Instances,
    Labelled,
    expect_file,
    image_path,
    need,
    read,
    read_h5,
    read_json,
    read_mat,
    unreadable,
)
from bitfactor.pose.crop import adjusted_mpii_box, mpii_box
from bitfactor.pose.skeletons import MPII

_JOINTS = len(MPII.keypoints)
_NEEDED = ("x1", "y1", "x2", "y2", "scale", "objpos", "annopoints")
_NECK, _HEAD = MPII.keypoints.index("upper_neck"), MPII.keypoints.index("head_top")

Box = Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]


@dataclass(frozen=True)
class _Person:
    """A person as annotated, counted from 1; a keypoint without label is NaN."""

    image: str
    centre: tuple[float, float]
    scale: float
    keypoints: NDArray[np.float64]
    norm: float


def read_mpii_json(path: Path, images: Path) -> Instances:
    """Read instances from HRNet's or mmpose's JSON: centre and scale as annotated, no head boxes.

    MPII places upper neck and head top on the middle line of the head's box, 0.8 of its diagonal apart. So
    0.75 times their distance is the size of the head. Instances of scale -1, which means unknown, are left
    out.
    """
    rows = read_json(path)
    if not isinstance(rows, list):
        raise _bad(path, "JSON that is not a list of instances")
    instances = []
    for number, row in enumerate(rows):
        names = ("image", "center", "scale", "joints", "joints_vis")
        image, centre, scale, keypoints, labelled = need(row, names, f"{path}, person {number}")
        try:
            places = np.array(keypoints, np.float64).reshape(_JOINTS, 2)
            places[np.array(labelled, np.float64).reshape(_JOINTS) == 0] = np.nan
            norm = 0.75 * float(np.linalg.norm(places[_HEAD] - places[_NECK]))
            if scale != -1:
                instances.append(_Person(str(image), (centre[0], centre[1]), float(scale), places, norm))
        except (TypeError, ValueError, LookupError) as error:
            raise _bad(f"{path}, person {number}", f"entries that are not ({error})") from error
    return _instances(instances, images, mpii_box, path)


def read_mpii_h5(path: Path, images: Path) -> Instances:
    """Read instances from `train.h5` or `valid.h5` of pose-hg-train; its centre and scale are the crop's."""
    keys = ("imgname", "center", "scale", "part", "normalize")
    names, centre, scale, keypoints, norm = need(read_h5(path), keys, path)
    n = len(names)
    if centre.shape != (n, 2) or keypoints.shape != (n, _JOINTS, 2) or scale.size != n or norm.size != n:
        raise _bad(path, f"arrays of shapes {centre.shape}, {keypoints.shape}, {scale.shape}, {norm.shape}")
    places = np.where((keypoints != 0).any(2, keepdims=True), keypoints, np.nan).astype(np.float64)
    columns = zip(map(_text, names), centre, scale.ravel(), places, norm.ravel(), strict=True)
    instances = [_Person(image, tuple(c), float(s), p, float(d)) for image, c, s, p, d in columns]
    return _instances(instances, images, adjusted_mpii_box, path)


def read_mpii_mat(path: Path, images: Path) -> tuple[Instances, NDArray[np.bool_]]:
    """Read the instances of the official `mpii_human_pose_v1_u12_1.mat`: centre and scale as annotated.

    Returns
    -------
    The instances, and which of them are sufficiently far from others (`single_person`), (N,): those that
    networks are trained on. Instances without scale, position or keypoints, as in the official test part, are
    left out.
    """
    (release,) = need(read_mat(path), ("RELEASE",), path)
    try:
        found = list(_annotated(release[0, 0]))
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise _bad(path, f"a struct RELEASE that is built otherwise ({error})") from error
    instances = _instances([person for person, _ in found], images, mpii_box, path)
    return instances, np.array([single for _, single in found], bool)


def _annotated(release: Any) -> Iterator[tuple[_Person, bool]]:
    """Yield the instances of the official struct, and whether each is far from others."""
    images, train = release.annolist.ravel(), np.asarray(release.img_train).ravel()
    singles = release.single_person.ravel()
    for image, in_train, single in zip(images, train, singles, strict=True):
        if not in_train:
            continue
        far = {int(number) for number in np.asarray(single).ravel()}
        for number, rect in enumerate(np.asarray(image.annorect).ravel(), start=1):
            fields = {name: np.asarray(getattr(rect, name)) for name in getattr(rect, "_fieldnames", ())}
            if all(name in fields and fields[name].size for name in _NEEDED):
                yield _official(str(image.image[0, 0].name[0]), fields), number in far


def _official(image: str, fields: Mapping[str, NDArray[Any]]) -> _Person:
    keypoints = np.full((_JOINTS, 2), np.nan)
    points: NDArray[Any] = getattr(fields["annopoints"].ravel()[0], "point", np.empty(0))
    for point in points.ravel():
        keypoints[int(point.id.item())] = float(point.x.item()), float(point.y.item())
    corners = [float(fields[name].item()) for name in ("x1", "y1", "x2", "y2")]
    size = float(head_size(np.reshape(corners, (1, 2, 2)))[0])
    position = fields["objpos"].ravel()[0]
    centre = float(position.x.item()), float(position.y.item())
    return _Person(image, centre, float(fields["scale"].item()), keypoints, size)


def _instances(found: list[_Person], images: Path, box: Box, where: Path) -> Instances:
    keypoints = np.array([person.keypoints for person in found]).reshape(-1, _JOINTS, 2)
    labelled = np.isfinite(keypoints).all(2)
    centre, side = box(
        np.array([person.centre for person in found], np.float64).reshape(-1, 2),
        np.array([person.scale for person in found], np.float64),
    )
    files = tuple(image_path(images, person.image, where) for person in found)
    return Instances(
        files,
        centre - 1,
        side,
        np.where(labelled[..., None], keypoints, 0) - 1,
        labelled,
        np.array([person.norm for person in found], np.float64),
        dict.fromkeys(files),
    ).check(where)


def _text(name: Any) -> str:
    """Return an image's name from bytes, or from a row of character codes."""
    if isinstance(name, np.ndarray):
        name = bytes(int(code) for code in name if code)
    return name.decode() if isinstance(name, bytes) else str(name)


def _bad(where: object, found: str) -> InputError:
    return InputError(
        where,
        expected="MPII's annotations, as their authors, HRNet, mmpose or pose-hg-train publish them",
        found=found,
        fix="give the file as it is published",
    )


HEAD = 0.6
"""Size of a head / diagonal of its box."""


@checked
def read_truth(path: str | os.PathLike[str]) -> Labelled:
    """Read `detections_our_format.mat`, or HRNet's `gt_valid.mat`, which holds the same.

    Coordinates are counted from 1, as predictions that are published are. The norm is the head's size.
    """
    path = Path(path)
    expect_file(path)
    if path.suffix.lower() != ".mat":
        raise _no_truth(path, f"the ending {path.suffix!r}")
    names = ("pos_gt_src", "jnt_missing", "headboxes_src")
    keypoints, missing, heads = (np.asarray(array) for array in need(read_mat(path), names, path))
    n = keypoints.shape[-1]
    shapes = {"pos_gt_src": (16, 2, n), "jnt_missing": (16, n), "headboxes_src": (2, 2, n)}
    for name, array in zip(names, (keypoints, missing, heads), strict=True):
        if array.shape != shapes[name]:
            raise _no_truth(path, f"{name} of shape {array.shape}")
    size = head_size(heads.transpose(2, 0, 1))
    return Labelled(keypoints.transpose(2, 0, 1).astype(np.float64), missing.T == 0, size)


def head_size(boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the size of heads whose boxes are given by two corners, (N, 2, 2) -> (N,)."""
    return np.asarray(HEAD * np.linalg.norm(boxes[:, 1] - boxes[:, 0], axis=1), np.float64)


def _no_truth(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="detections_our_format.mat with pos_gt_src (16, 2, N), jnt_missing (16, N), "
        "headboxes_src (2, 2, N)",
        found=found,
        fix="give the file that is published with MPII's validation split",
    )


def find(instances: Instances, truth: Labelled) -> NDArray[np.int64]:
    """Return for each person of `truth`, (M,), the number of the same one among `instances`, or -1.

    The file of true keypoints names no images, and the official annotations do not say who is in the split.
    The same person is the one with most of the keypoints at the same whole pixels, and at least half of them.
    """
    known = _pixels(instances.keypoints)
    holders: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for person, keypoint in np.argwhere(instances.labelled):
        holders[(keypoint, *known[person, keypoint])].append(person)
    wanted = _pixels(truth.keypoints - 1)
    found = np.full(len(wanted), -1)
    for row, labelled in enumerate(truth.labelled):
        votes: dict[int, int] = defaultdict(int)
        for keypoint in np.flatnonzero(labelled):
            for person in holders.get((keypoint, *wanted[row, keypoint]), ()):
                votes[person] += 1
        best = max(votes, key=lambda person: votes[person], default=-1)
        if best >= 0 and 2 * votes[best] >= labelled.sum():
            found[row] = best
    return found


def corrected(instances: Instances, truth: Labelled) -> Instances:
    """Return those of `truth` that are in `instances`, in its order, with what it says of them."""
    found = find(instances, truth)
    present = np.flatnonzero(found >= 0)
    chosen = instances.take(found[present])
    keypoints, labelled, norm = truth.keypoints[present] - 1, truth.labelled[present], truth.norm[present]
    return replace(chosen, keypoints=keypoints, labelled=labelled, norm=norm)


def _pixels(keypoints: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(keypoints + 0.25).astype(np.int64)


_NAMES = ("preds", "pred", "predictions", "pos_pred_src", "keypoints", "joints")


@checked
def read_predictions(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Return the joints (N, 16, 2), x and y, that a .mat, .h5 or .json file holds.

    They stand under `preds` or a name like it, or are all that a JSON file holds. Shapes are (N, 16, 2), also
    with a third column of confidences, and Matlab's older (2, 16, N) and (16, 2, N).
    """
    path = Path(path)
    return _instances_first(_array(read(path), path), path)


def _array(content: Any, path: Path) -> NDArray[np.float64]:
    if isinstance(content, Mapping):
        name = next((name for name in _NAMES if name in content), None)
        if name is None:
            held = ", ".join(map(repr, list(content)[:8])) or "nothing"
            raise _no_predictions(path, held)
        content = content[name]
    elif isinstance(content, list) and content and isinstance(content[0], Mapping):
        name = next((name for name in _NAMES if name in content[0]), None)
        if name is None or not all(isinstance(person, Mapping) and name in person for person in content):
            raise _no_predictions(path, f"instances with {', '.join(map(repr, list(content[0])[:8]))}")
        content = [person[name] for person in content]
    try:
        return np.asarray(content, np.float64)
    except (TypeError, ValueError) as error:
        raise unreadable(path, error) from error


def _instances_first(array: NDArray[np.float64], path: Path) -> NDArray[np.float64]:
    if array.ndim == 2 and array.shape[1] in (2 * _JOINTS, 3 * _JOINTS):  # COCO's flat lists
        array = array.reshape(len(array), _JOINTS, -1)
    if array.ndim == 3:
        if array.shape[1] == _JOINTS and array.shape[2] in (2, 3):
            return array[..., :2]
        if array.shape[:2] == (2, _JOINTS):
            return array.transpose(2, 1, 0)
        if array.shape[:2] == (_JOINTS, 2):
            return array.transpose(2, 0, 1)
    raise _no_predictions(path, f"an array of shape {array.shape}")


def _no_predictions(path: Path, found: str) -> InputError:
    return InputError(
        path,
        expected="predicted joints of shape (N, 16, 2), (2, 16, N) or (16, 2, N), named preds",
        found=found,
        fix="write them so",
    )
