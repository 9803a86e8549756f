"""Where MPII's annotations are looked for, and who is in the test set. (Forms: tests/pose/test_mpii.py.)"""

import json

import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data.readers.annotations import read_mpii

JOINTS = np.random.default_rng(0).uniform(10, 300, (12, 16, 2)).round()


def rows(instances):
    return [
        {
            "image": f"{i}.jpg",
            "center": [100.0 + i, 100.0],
            "scale": 1.0,
            "joints": JOINTS[i].tolist(),
            "joints_vis": [1] * 16,
        }
        for i in instances
    ]


def write_truth(path, instances, heads=20.0):
    corners = np.zeros((2, 2, len(instances)))
    corners[1, 0] = heads
    variables = {
        "pos_gt_src": JOINTS[instances].transpose(1, 2, 0),
        "jnt_missing": np.zeros((16, len(instances)), np.uint8),
        "headboxes_src": corners,
    }
    scipy.io.savemat(path, variables)


@pytest.mark.parametrize(
    ("folder", "names", "truth"),
    [
        ("annot", ("train.json", "valid.json"), "gt_valid.mat"),
        ("annotations", ("mpii_train.json", "mpii_val.json"), "mpii_gt_val.mat"),
        (".", ("train.json", "valid.json"), "detections_our_format.mat"),
    ],
)
def test_published_layouts(tmp_path, folder, names, truth):
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, instances in zip(names, (range(8), range(8, 12)), strict=True):
        (tmp_path / folder / name).write_text(json.dumps(rows(instances)))
    train, test = read_mpii(tmp_path)
    assert (len(train), len(test)) == (8, 4)
    assert train.images[0] == tmp_path / "images" / "0.jpg"
    assert test.norm[0] == pytest.approx(0.75 * np.linalg.norm(JOINTS[8, 9] - JOINTS[8, 8]))
    write_truth(tmp_path / folder / truth, [9, 8, 10, 11])
    _, test = read_mpii(tmp_path)
    assert [path.name for path in test.images] == ["9.jpg", "8.jpg", "10.jpg", "11.jpg"]
    np.testing.assert_allclose(test.norm, 0.6 * 20)


def test_a_truth_of_other_instances(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps(rows(range(8))))
    (tmp_path / "valid.json").write_text(json.dumps(rows(range(8, 12))))
    write_truth(tmp_path / "gt_valid.mat", [0, 1, 2, 8])
    with pytest.raises(InputError, match=r"the same 4 test instances .* found 1 of them"):
        read_mpii(tmp_path)


def test_one_file_of_two(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps(rows(range(8))))
    with pytest.raises(InputError, match=r"train\.json and valid\.json.*found train\.json alone"):
        read_mpii(tmp_path)
