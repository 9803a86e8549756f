"""Predictions and true keypoints are read from every published layout of files."""

import json
import sys

import h5py
import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data.readers.mpii import read_predictions, read_truth

JOINTS = np.random.default_rng(0).uniform(0, 500, (5, 16, 2))
THREE = np.concatenate([JOINTS, np.ones((5, 16, 1))], 2)


def write(path, name, array):
    if path.suffix == ".mat":
        scipy.io.savemat(path, {name: array})
    elif path.suffix == ".json":
        path.write_text(json.dumps({name: array.tolist()} if name else array.tolist()))
    else:
        with h5py.File(path, "w") as file:
            file[name] = array


@pytest.mark.parametrize(
    ("ending", "name", "array"),
    [
        (".mat", "preds", JOINTS),
        (".mat", "preds", JOINTS.transpose(2, 1, 0)),
        (".mat", "pos_pred_src", JOINTS.transpose(1, 2, 0)),
        (".h5", "preds", JOINTS),
        (".h5", "preds", THREE),
        (".json", "preds", JOINTS),
        (".json", "", JOINTS),
        (".json", "", THREE),
        (".json", "", THREE.reshape(5, 48)),
    ],
)
def test_every_published_layout(tmp_path, ending, name, array):
    path = tmp_path / f"predictions{ending}"
    write(path, name, array)
    np.testing.assert_allclose(read_predictions(path), JOINTS)


def test_json_with_an_object_per_person(tmp_path):
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps([{"image": "a", "keypoints": person.ravel().tolist()} for person in THREE]))
    np.testing.assert_allclose(read_predictions(path), JOINTS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"1,2", "ends in .mat, .h5"),
        ("x.mat", b"no matrix", "x.mat file that can be read|.mat file that can be read"),
        ("x.h5", b"no matrix", ".h5 file that can be read"),
        ("x.json", b"{", ".json file that can be read"),
        ("x.json", b'{"scores": []}', "found 'scores'"),
        ("x.json", b'[{"scores": []}]', "instances with 'scores'"),
        ("x.json", b'[[1, 2], ["a"]]', "can be read"),
        ("x.json", b"[[1, 2], [3, 4]]", r"shape \(2, 2\)"),
        ("x.json", b"7", r"shape \(\)"),
    ],
)
def test_other_files_as_predictions(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_predictions(tmp_path / name)


@pytest.mark.parametrize("ending", [".mat", ".h5", ".json"])
def test_no_such_file(tmp_path, ending):
    with pytest.raises(InputError, match="No such file"):
        read_predictions(tmp_path / f"none{ending}")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"h5py.*pip install 'bitfactor\[pose\]'"):
        read_predictions(tmp_path / "x.h5")


def truth_variables(n=3):
    rng = np.random.default_rng(1)
    missing = np.zeros((16, n), np.uint8)
    missing[0, 1] = 1
    heads = np.stack([np.zeros((2, n)), np.tile([[3.0], [4.0]], n)])
    return {"pos_gt_src": rng.uniform(0, 9, (16, 2, n)), "jnt_missing": missing, "headboxes_src": heads}


def test_truth(tmp_path):
    variables = truth_variables()
    scipy.io.savemat(tmp_path / "truth.mat", variables)
    truth = read_truth(tmp_path / "truth.mat")
    assert np.array_equal(truth.keypoints[2, 7], variables["pos_gt_src"][7, :, 2])
    assert truth.labelled.sum() == 47
    assert not truth.labelled[1, 0]
    np.testing.assert_allclose(truth.norm, 0.6 * 5)


@pytest.mark.parametrize("missing", ["pos_gt_src", "jnt_missing", "headboxes_src"])
def test_other_files_as_truth(tmp_path, missing):
    variables = truth_variables()
    del variables[missing]
    scipy.io.savemat(tmp_path / "truth.mat", variables)
    with pytest.raises(InputError, match=f"no '{missing}'"):
        read_truth(tmp_path / "truth.mat")
    variables[missing] = np.zeros((2, 3))
    scipy.io.savemat(tmp_path / "truth.mat", variables)
    with pytest.raises(InputError, match="of shape"):
        read_truth(tmp_path / "truth.mat")
    (tmp_path / "truth.h5").touch()
    with pytest.raises(InputError, match=r"ending '\.h5'"):
        read_truth(tmp_path / "truth.h5")
