"""Leeds Sports Pose: its instances, boxes and split."""

import numpy as np
import pytest
import scipy.io
import torch

from bitfactor.common.errors import InputError
from bitfactor.data import Lsp
from bitfactor.data.readers.annotations import read_lsp

JOINTS = np.random.default_rng(0).uniform(10, 90, (6, 14, 2))
MARKS = np.random.default_rng(1).integers(0, 2, (6, 14, 1))


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(1, 7):
        (tmp_path / "images" / f"im{i:05d}.jpg").write_bytes(b"")
    table = np.concatenate([JOINTS, MARKS], 2)
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": table.transpose(1, 2, 0)})
    return tmp_path


def test_extension(directory):
    instances = read_lsp(directory)
    assert np.array_equal(instances.labelled, MARKS[..., 0] == 1)
    assert np.array_equal(instances.keypoints, JOINTS)
    assert [path.name for path in instances.images[:2]] == ["im00001.jpg", "im00002.jpg"]
    torso = np.linalg.norm(JOINTS[:, 8] - JOINTS[:, 3], axis=1)
    known = instances.labelled[:, [8, 3]].all(1)
    np.testing.assert_allclose(instances.norm[known], torso[known])
    assert np.isnan(instances.norm[~known]).all()
    assert known.any()
    assert not known.all()


def test_the_box_holds_the_labelled_keypoints_in_two_thirds_of_it(directory):
    instances = read_lsp(directory)
    for i in range(6):
        own = instances.keypoints[i][instances.labelled[i]]
        assert (own.max(0) - own.min(0)).max() == pytest.approx(instances.side[i] / 1.5)
        np.testing.assert_allclose((own.max(0) + own.min(0)) / 2, instances.centre[i])


def test_hidden_keypoints_of_lsp_are_labelled(directory):
    """Its third row marks hidden keypoints with 1, not labelled ones."""
    table = np.concatenate([JOINTS, MARKS], 2)
    scipy.io.savemat(directory / "joints.mat", {"joints": table.transpose(2, 1, 0)})
    instances = read_lsp(directory)
    assert instances.labelled.all()
    assert np.array_equal(instances.keypoints, JOINTS)


def test_what_does_not_fit(directory):
    (directory / "images" / "im00003.jpg").unlink()
    with pytest.raises(InputError, match=r"expected 6 images.*found 5"):
        read_lsp(directory)
    scipy.io.savemat(directory / "joints.mat", {"joints": np.zeros((16, 3, 6))})
    with pytest.raises(InputError, match=r"found shape \(16, 3, 6\)"):
        read_lsp(directory)
    (directory / "joints.mat").write_bytes(b"")
    with pytest.raises(InputError, match=r"joints.mat: expected a .mat file that can be read"):
        read_lsp(directory)
    (directory / "joints.mat").unlink()
    with pytest.raises(InputError, match="No such file"):
        read_lsp(directory)


def test_instances_without_two_labels_are_left_out_after_the_split(directory):
    table = np.concatenate([JOINTS, np.ones((6, 14, 1))], 2)
    table[1, :, 2] = 0
    table[4, 1:, 2] = 0
    scipy.io.savemat(directory / "joints.mat", {"joints": table.transpose(1, 2, 0)})
    data = Lsp.load(directory)
    assert [path.name for path in data.train.images] == ["im00001.jpg", "im00003.jpg"]
    assert [path.name for path in data.test.images] == ["im00004.jpg", "im00006.jpg"]


def test_nobody_with_a_label(directory):
    table = np.concatenate([JOINTS, np.zeros((6, 14, 1))], 2)
    scipy.io.savemat(directory / "joints.mat", {"joints": table.transpose(1, 2, 0)})
    with pytest.raises(InputError, match="nobody with a labelled keypoint"):
        Lsp.load(directory)


def test_real_images(real_data, tmp_path):
    """The last 1,000 are the test set; most keypoints lie inside their crop, also when it is moved."""
    with np.load(real_data / "lspet.npz") as pack:
        data, offsets, keypoints = pack["data"], pack["offsets"], pack["joints"]
    (tmp_path / "images").mkdir()
    for i in range(len(keypoints)):
        image = data[offsets[i] : offsets[i + 1]].tobytes() if i < 40 else b""
        (tmp_path / "images" / f"im{i + 1:05d}.jpg").write_bytes(image)
    scipy.io.savemat(tmp_path / "joints.mat", {"joints": keypoints.transpose(1, 2, 0).astype(float)})
    whole = Lsp.load(tmp_path)
    assert (len(whole.train), len(whole.test)) == (8991, 1000)
    inputs, target = next(Lsp.load(tmp_path, limit=40).train_batches(40, 0, 0))
    assert torch.isfinite(inputs).all()
    assert target["weight"].sum() / target["labelled"].sum() > 0.95
