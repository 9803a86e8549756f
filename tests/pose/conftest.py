"""MPII's annotations of made-up people, in the three published forms."""

import json
from dataclasses import dataclass

import h5py
import numpy as np
import pytest
import scipy.io


@dataclass(frozen=True)
class Made:
    """People as annotated: pixels count from 1, and a joint without label is NaN."""

    images: list
    centre: np.ndarray
    scale: np.ndarray
    joints: np.ndarray
    heads: np.ndarray  # (N, 2, 2): two corners

    @property
    def labelled(self):
        return np.isfinite(self.joints).all(2)

    @property
    def norm(self):
        return 0.6 * np.linalg.norm(self.heads[:, 1] - self.heads[:, 0], axis=1)

    def take(self, rows):
        return Made(
            [self.images[i] for i in rows],
            *(a[rows] for a in (self.centre, self.scale, self.joints, self.heads)),
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


def rectangle(people, i):
    points = [
        {"x": float(x), "y": float(y), "id": float(j), "is_visible": "1"}
        for j, (x, y) in enumerate(people.joints[i])
        if np.isfinite(x)
    ]
    (x1, y1), (x2, y2) = people.heads[i]
    return {
        "x1": x1,
        "y1": y1,
        "x2": x2,
        "y2": y2,
        "annopoints": struct(point=structs(points)),
        "scale": people.scale[i],
        "objpos": struct(x=people.centre[i, 0], y=people.centre[i, 1]),
    }


def write_mat(path, people, crowded=()):
    """The official struct: a person per image, then one without annotation; a test image at the end."""
    nothing = {"annopoints": np.empty((0, 0)), "scale": np.empty((0, 0)), "objpos": np.empty((0, 0))}
    empty = {"x1": 1.0, "y1": 1.0, "x2": 2.0, "y2": 2.0, **nothing}
    images = []
    for i, name in enumerate(people.images):
        rectangles = structs([rectangle(people, i), empty])
        images.append({"image": struct(name=name), "annorect": rectangles})
    images.append({"image": struct(name="test.jpg"), "annorect": structs([rectangle(people, 0)])})
    single = np.empty((len(images), 1), object)
    for i in range(len(images)):
        single[i, 0] = np.empty((0, 0)) if i in crowded else np.array([[1]], np.uint8)
    in_train = np.array([[1] * len(people.images) + [0]], np.uint8)
    release = struct(annolist=structs(images), img_train=in_train, single_person=single)
    scipy.io.savemat(path, {"RELEASE": release})


def write_json(path, people):
    rows = [
        {
            "joints_vis": people.labelled[i].astype(int).tolist(),
            "joints": np.where(people.labelled[i][:, None], people.joints[i], -1).tolist(),
            "image": people.images[i],
            "scale": float(people.scale[i]),
            "center": people.centre[i].tolist(),
        }
        for i in range(len(people.images))
    ]
    path.write_text(json.dumps(rows))


def write_h5(path, people):
    """As pose-hg-train: centre and scale adjusted, neck and head cut to whole numbers, 0 without label."""
    joints = np.where(people.labelled[..., None], people.joints, 0)
    joints[:, 8:10] = np.trunc(joints[:, 8:10])
    with h5py.File(path, "w") as file:
        file["imgname"] = np.array([name.encode() for name in people.images])
        file["center"] = people.centre + np.stack([0 * people.scale, 15 * people.scale], 1)
        file["scale"] = 1.25 * people.scale
        file["part"] = joints
        file["visible"] = people.labelled.astype(float)
        file["normalize"] = people.norm


def write_truth(path, people):
    joints = np.where(people.labelled[..., None], people.joints, 0)
    variables = {
        "pos_gt_src": joints.transpose(1, 2, 0),
        "jnt_missing": (~people.labelled).T.astype(np.uint8),
        "headboxes_src": people.heads.transpose(1, 2, 0),
    }
    scipy.io.savemat(path, variables)


@pytest.fixture(scope="session")
def people():
    """Twenty people; some joints are not labelled. Neck and head lie on the head's box as MPII has them."""
    rng = np.random.default_rng(0)
    n = 20
    joints = np.round(rng.uniform(20, 400, (n, 16, 2)))
    neck, head = joints[:, 8], joints[:, 9] + 0.27
    joints[:, 9] = head
    middle, axis = (neck + head) / 2, (head - neck) / 0.8 / 2
    joints[rng.random((n, 16)) < 0.1] = np.nan
    joints[:, 8:10] = np.stack([neck, head], 1)
    return Made(
        [f"{i:09d}.jpg" for i in range(n)],
        rng.uniform(100, 300, (n, 2)).round(),
        rng.uniform(0.5, 4, n),
        joints,
        np.stack([middle - axis, middle + axis], 1),
    )


@pytest.fixture(scope="session")
def writers():
    """Ending -> function that writes people to a path."""
    return {"mat": write_mat, "json": write_json, "h5": write_h5, "truth": write_truth}
