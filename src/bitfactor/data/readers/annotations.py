"""Where the annotations of LSP, MPII and COCO lie in a directory, and who is in which part; without torch."""

import warnings
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitfactor.common.checks import expect_that
from bitfactor.common.errors import InputError
from bitfactor.common.image_spec import Skeleton, paired, unpaired
from bitfactor.data.readers.files import existing, some
from bitfactor.data.readers.instances import Instances, image_path, need, read_json, read_mat
from bitfactor.data.readers.mpii import (
    corrected,
    find,
    read_mpii_h5,
    read_mpii_json,
    read_mpii_mat,
    read_truth,
)
from bitfactor.pose import COCO, LSP, read_skeleton

_MARGIN = 1.25  # side of the crop / longer side of the box


def read_coco(path: Path, images: Path, skeleton: Skeleton) -> Instances:
    """Read those annotations of a COCO file that have a labelled keypoint; crowds are left out.

    So are objects without keypoints and those of categories without; a warning tells how many.

    A person's crop is a square around the middle of `bbox`, 1.25 times as wide as its longer side. Errors are
    measured by that side. Keypoints that are hidden but labelled (visibility 1) count as labelled.

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
    return _skeleton_of(path, named[0]) if named else None


def _skeleton_of(path: Path, category: Mapping[str, Any]) -> Skeleton:
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


MARGIN = 1.5  # side of the crop / extent of the keypoints
_TEST = 1000  # instances


def read_lsp(directory: Path | None, margin: float = MARGIN) -> Instances:
    """Read everybody in a directory of LSP or its extension, in the order of the images' numbers.

    Where fewer than two keypoints are labelled, the side of the box is 0.
    """
    fix = "see http://sam.johnson.io/research/lspet.html for the files"
    expected = "the directory of LSP or LSP extended, with joints.mat and images/"
    directory = existing(directory, expected, fix)
    path = directory / "joints.mat"
    keypoints, labelled = _keypoints(path)
    images = tuple(sorted((directory / "images").glob("im*.jpg")))
    fits, where = len(images) == len(keypoints), directory / "images"
    expected = f"{len(keypoints)} images im*.jpg, as joints.mat has instances"
    expect_that(fits, where, expected=expected, found=len(images), fix="unpack the archive again")
    low = keypoints.min(1, where=labelled[..., None], initial=np.inf)
    high = keypoints.max(1, where=labelled[..., None], initial=-np.inf)
    low[~labelled.any(1)] = high[~labelled.any(1)] = 0
    shoulder, hip = LSP.keypoints.index("right_shoulder"), LSP.keypoints.index("left_hip")
    torso = np.linalg.norm(keypoints[:, shoulder] - keypoints[:, hip], axis=1)
    return Instances(
        images,
        centre=(low + high) / 2,
        side=margin * (high - low).max(1),
        keypoints=keypoints,
        labelled=labelled,
        norm=np.where(labelled[:, shoulder] & labelled[:, hip], torso, np.nan),
        annotated=dict.fromkeys(images),
    )


def lsp_parts(instances: Instances) -> tuple[Instances, Instances]:
    """Return whom to train on, and the last 1,000, whom to test on; of a small directory the last half."""
    kept = max(len(instances) - _TEST, len(instances) // 2)
    return instances.take(slice(kept)), instances.take(slice(kept, None))


def _keypoints(path: Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return keypoints (N, 14, 2) and which are labelled, (N, 14)."""
    (table,) = need(read_mat(path), ("joints",), path)
    table = np.asarray(table)
    if table.shape[:2] == (14, 3) and table.ndim == 3:  # the extension
        rows = table.transpose(2, 0, 1).astype(np.float64)
        return rows[..., :2], rows[..., 2] == 1
    if table.shape[:2] == (3, 14) and table.ndim == 3:  # LSP
        rows = table.transpose(2, 1, 0).astype(np.float64)
        return rows[..., :2], np.ones(rows.shape[:2], bool)
    raise InputError(
        path,
        expected="joints of shape (14, 3, N) or (3, 14, N)",
        found=f"shape {table.shape}",
        fix="give joints.mat as its authors distribute it",
    )


_FOLDERS = (".", "annot", "annotations", "mpii_human_pose_v1_u12_2")
_PAIRS = (
    ("train.json", "valid.json"),  # HRNet
    ("mpii_train.json", "mpii_val.json"),  # mmpose
    ("train.h5", "valid.h5"),  # pose-hg-train
)
_TRUTHS = ("detections_our_format.mat", "gt_valid.mat", "mpii_gt_val.mat")
_OFFICIAL = "mpii_human_pose*.mat"
_FORMS = "images/ and the annotations of MPII, here or in annot/: " + "; ".join(
    (*(" and ".join(pair) for pair in _PAIRS), f"{_OFFICIAL} and {_TRUTHS[0]}")
)
_SOURCE = "get images and annotations from http://human-pose.mpi-inf.mpg.de or the annotations from HRNet"


def read_mpii(directory: Path | None) -> tuple[Instances, Instances]:
    """Read whichever form of the annotations `directory` holds: the instances to train on, and those to test
    on.
    """
    directory = existing(directory, _FORMS, _SOURCE)
    images = directory / "images"
    truths = [path for name in _TRUTHS for path in _found(directory, name)]
    truth = read_truth(truths[0]) if truths else None
    for names in _PAIRS:
        pair = [path for name in names for path in _found(directory, name)[:1]]
        if len(pair) == 2:
            reader = read_mpii_json if pair[0].suffix == ".json" else read_mpii_h5
            train, test = (reader(path, images) for path in pair)
            if truth is not None:
                test = _scored(corrected(test, truth), len(test), directory)
            return train, test
    for path in _found(directory, _OFFICIAL):
        if truth is None:
            raise InputError(
                directory,
                expected=f"{_TRUTHS[0]} beside {path.name}: it tells who is in the test set",
                found="none",
                fix="get it from https://github.com/anibali/eval-mpii-pose, or use the annotations of HRNet",
            )
        instances, single = read_mpii_mat(path, images)
        known = find(instances, truth)
        training = np.setdiff1d(np.flatnonzero(single), known)
        return instances.take(training), _scored(corrected(instances, truth), len(truth.norm), directory)
    found = f"{' and '.join(mpii_files(directory))} alone" if mpii_files(directory) else "none"
    raise InputError(directory, expected=_FORMS, found=found, fix=_SOURCE)


def mpii_files(directory: Path) -> list[str]:
    """Return the names of MPII's annotations that lie in `directory`, if only of one part."""
    names = [name for pair in (*_PAIRS, (_OFFICIAL,)) for name in pair]
    return [path.name for name in names for path in _found(directory, name)]


def _scored(found: Instances, expected: int, directory: Path) -> Instances:
    same = f"the same {expected} test instances in the annotations and in {_TRUTHS[0]}"
    both, fix = f"{len(found)} of them in both", "give files of the same split"
    expect_that(len(found) >= 0.99 * expected, directory, expected=same, found=both, fix=fix)
    return found


def _found(directory: Path, pattern: str) -> list[Path]:
    return [path for folder in _FOLDERS for path in sorted((directory / folder).glob(pattern))]


def read_coco_parts(directory: Path | None) -> tuple[Instances, Instances, Skeleton, str]:
    """Read annotations in COCO's layout.

    Returns
    -------
    The instances to train on, those to test on, their skeleton, and why they are not mirrored, or nothing.
    """
    expected = "annotations/person_keypoints_{train,val}2017.json, or train.json and val.json"
    fix = "unpack COCO's annotations there, or write your own in their layout"
    directory = existing(directory, expected, fix)
    files = coco_files(directory)
    if files is None:
        raise InputError(directory, expected=expected, found="neither", fix=fix)
    (train_file, train_images), (test_file, test_images) = files
    described = skeleton_in(train_file)
    skeleton = _skeleton(train_file, described)
    _expect_order(train_file, described, skeleton, described)
    _expect_order(test_file, skeleton_in(test_file), skeleton, described)
    train = read_coco(train_file, train_images, skeleton)
    return train, read_coco(test_file, test_images, skeleton), skeleton, _unmirrored(train_file, skeleton)


def coco_files(directory: Path) -> list[tuple[Path, Path]] | None:
    """Return annotations and images of both parts, if they are there."""
    official = directory / "annotations"
    layouts = (
        [(official / f"person_keypoints_{p}2017.json", directory / f"{p}2017") for p in ("train", "val")],
        [(directory / f"{part}.json", directory / "images") for part in ("train", "val")],
    )
    return next((parts for parts in layouts if all(file.is_file() for file, _ in parts)), None)


_OWN = "skeleton.json"


def _expect_order(file: Path, described: Skeleton | None, skeleton: Skeleton, first: Skeleton | None) -> None:
    """Raise InputError where a file's category has the keypoints in another order, or other ones.

    A skeleton of one's own may rename all; `first` is that of the training file.
    """
    if described is None or described.keypoints == skeleton.keypoints:
        return
    own = set(described.keypoints).isdisjoint(skeleton.keypoints)
    if own and first is not None and described.keypoints == first.keypoints:
        return
    pairs = zip_longest(described.keypoints, skeleton.keypoints)
    place = next(i for i, (theirs, ours) in enumerate(pairs) if theirs != ours)
    raise InputError(
        file,
        expected=f"the keypoints {some(skeleton.keypoints[place:])} from number {place + 1} on",
        found=some(described.keypoints[place:]) or "none",
        fix="bring the keypoints of both files into one order",
    )


def _unmirrored(train_file: Path, skeleton: Skeleton) -> str:
    own = train_file.with_name(_OWN)
    said = own.is_file() and "flip_pairs" in read_json(own)
    why = "" if said else unpaired(skeleton)
    return why and f"{train_file}: {why}, so images are not mirrored; {_OWN} beside it can name flip_pairs"


def _skeleton(train_file: Path, described: Skeleton | None) -> Skeleton:
    own = train_file.with_name(_OWN)
    if own.is_file():
        return read_skeleton(own)
    return COCO if described is None or described.keypoints == COCO.keypoints else described
