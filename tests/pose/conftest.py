"""MPII's annotations of made-up instances, in the three published forms."""

import json
from dataclasses import dataclass

import h5py
import numpy as np
import pytest
import scipy.io


@dataclass(frozen=True)
class Made:
    """Instances as annotated: pixels count from 1, and a keypoint without label is NaN."""

    images: list
    centre: np.ndarray
    scale: np.ndarray
    keypoints: np.ndarray
    heads: np.ndarray  # (N, 2, 2): two corners

    @property
    def labelled(self):
        return np.isfinite(self.keypoints).all(2)

    @property
    def norm(self):
        return 0.6 * np.linalg.norm(self.heads[:, 1] - self.heads[:, 0], axis=1)

    def take(self, rows):
        return Made(
            [self.images[i] for i in rows],
            *(a[rows] for a in (self.centre, self.scale, self.keypoints, self.heads)),
        )


def struct(**fields):
    """A Matlab struct of size 1 x 1."""
    made = np.empty((1, 1), [(name, object) for name in fields])
    for name, value in fields.items():
        made[name][0, 0] = value
    return made


def structs(rows):
    """A Matlab struct array of size 1 x n; rows are dictionaries with the same names."""
    made = np.empty((1, len(rows)), [(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        for name, value in row.items():
            made[name][0, i] = value
    return made


def rectangle(instances, i):
    points = [
        {"x": float(x), "y": float(y), "id": float(j), "is_visible": "1"}
        for j, (x, y) in enumerate(instances.keypoints[i])
        if np.isfinite(x)
    ]
    (x1, y1), (x2, y2) = instances.heads[i]
    return {
        "x1": x1,
        "y1": y1,
        "x2": x2,
        "y2": y2,
        "annopoints": struct(point=structs(points)),
        "scale": instances.scale[i],
        "objpos": struct(x=instances.centre[i, 0], y=instances.centre[i, 1]),
    }


def write_mat(path, instances, crowded=()):
    """The official struct: a person per image, then one without annotation; a test image at the end."""
    nothing = {"annopoints": np.empty((0, 0)), "scale": np.empty((0, 0)), "objpos": np.empty((0, 0))}
    empty = {"x1": 1.0, "y1": 1.0, "x2": 2.0, "y2": 2.0, **nothing}
    images = []
    for i, name in enumerate(instances.images):
        rectangles = structs([rectangle(instances, i), empty])
        images.append({"image": struct(name=name), "annorect": rectangles})
    images.append({"image": struct(name="test.jpg"), "annorect": structs([rectangle(instances, 0)])})
    single = np.empty((len(images), 1), object)
    for i in range(len(images)):
        single[i, 0] = np.empty((0, 0)) if i in crowded else np.array([[1]], np.uint8)
    in_train = np.array([[1] * len(instances.images) + [0]], np.uint8)
    release = struct(annolist=structs(images), img_train=in_train, single_person=single)
    scipy.io.savemat(path, {"RELEASE": release})


def write_json(path, instances):
    rows = [
        {
            "joints_vis": instances.labelled[i].astype(int).tolist(),
            "joints": np.where(instances.labelled[i][:, None], instances.keypoints[i], -1).tolist(),
            "image": instances.images[i],
            "scale": float(instances.scale[i]),
            "center": instances.centre[i].tolist(),
        }
        for i in range(len(instances.images))
    ]
    path.write_text(json.dumps(rows))


def write_h5(path, instances):
    """As pose-hg-train: centre and scale adjusted, neck and head cut to whole numbers, 0 without label."""
    keypoints = np.where(instances.labelled[..., None], instances.keypoints, 0)
    keypoints[:, 8:10] = np.trunc(keypoints[:, 8:10])
    with h5py.File(path, "w") as file:
        file["imgname"] = np.array([name.encode() for name in instances.images])
        file["center"] = instances.centre + np.stack([0 * instances.scale, 15 * instances.scale], 1)
        file["scale"] = 1.25 * instances.scale
        file["part"] = keypoints
        file["visible"] = instances.labelled.astype(float)
        file["normalize"] = instances.norm


def write_truth(path, instances):
    keypoints = np.where(instances.labelled[..., None], instances.keypoints, 0)
    variables = {
        "pos_gt_src": keypoints.transpose(1, 2, 0),
        "jnt_missing": (~instances.labelled).T.astype(np.uint8),
        "headboxes_src": instances.heads.transpose(1, 2, 0),
    }
    scipy.io.savemat(path, variables)


@pytest.fixture(scope="session")
def instances():
    """Twenty instances, some keypoints not labelled; neck and head lie on the head's box as in MPII."""
    rng = np.random.default_rng(0)
    n = 20
    keypoints = np.round(rng.uniform(20, 400, (n, 16, 2)))
    neck, head = keypoints[:, 8], keypoints[:, 9] + 0.27
    keypoints[:, 9] = head
    middle, axis = (neck + head) / 2, (head - neck) / 0.8 / 2
    keypoints[rng.random((n, 16)) < 0.1] = np.nan
    keypoints[:, 8:10] = np.stack([neck, head], 1)
    return Made(
        [f"{i:09d}.jpg" for i in range(n)],
        rng.uniform(100, 300, (n, 2)).round(),
        rng.uniform(0.5, 4, n),
        keypoints,
        np.stack([middle - axis, middle + axis], 1),
    )


@pytest.fixture(scope="session")
def writers():
    """Ending -> function that writes instances to a path."""
    return {"mat": write_mat, "json": write_json, "h5": write_h5, "truth": write_truth}
