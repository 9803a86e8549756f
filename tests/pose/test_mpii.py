"""The three published forms of MPII hold the same instances."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from bitfactor.common.errors import InputError
from bitfactor.data.readers.annotations import read_mpii
from bitfactor.data.readers.mpii import (
    corrected,
    find,
    read_mpii_h5,
    read_mpii_json,
    read_mpii_mat,
    read_truth,
)
from bitfactor.pose import crop_matrix, transform, warp
from bitfactor.pose.images import read_image


def read(path):
    if path.suffix == ".mat":
        return read_mpii_mat(path, Path("images"))[0]
    return {".json": read_mpii_json, ".h5": read_mpii_h5}[path.suffix](path, Path("images"))


@pytest.mark.parametrize("ending", ["mat", "json", "h5"])
def test_all_forms_hold_the_same_instances(tmp_path, instances, writers, ending):
    """Centre and scale are adjusted once, in whatever form; pixels count from 0."""
    path = tmp_path / f"instances.{ending}"
    writers[ending](path, instances)
    found = read(path)
    assert found.images == tuple(Path("images") / name for name in instances.images)
    np.testing.assert_allclose(found.centre[:, 0], instances.centre[:, 0] - 1)
    np.testing.assert_allclose(found.centre[:, 1], instances.centre[:, 1] + 15 * instances.scale - 1)
    np.testing.assert_allclose(found.side, 250 * instances.scale)
    assert np.array_equal(found.labelled, instances.labelled)
    difference = np.abs(found.keypoints - (instances.keypoints - 1))[instances.labelled]
    assert difference.max() < (1 if ending == "h5" else 1e-9)
    head = instances.labelled[:, 8:10].all(1)
    assert not head.all()
    np.testing.assert_allclose(found.norm[head], instances.norm[head])
    if ending == "json":  # the only form that holds no size of the head
        assert np.isnan(found.norm[~head]).all()
    else:
        np.testing.assert_allclose(found.norm, instances.norm)


def test_instances_far_from_others(tmp_path, instances, writers):
    writers["mat"](tmp_path / "instances.mat", instances, crowded=(3, 5))
    _, single = read_mpii_mat(tmp_path / "instances.mat", Path("images"))
    assert np.flatnonzero(~single).tolist() == [3, 5]


def test_names_as_character_codes(tmp_path, instances, writers):
    path = tmp_path / "instances.h5"
    writers["h5"](path, instances)
    with h5py.File(path, "r+") as file:
        del file["imgname"]
        file["imgname"] = np.array([[*name.encode(), 0, 0] for name in instances.images], float)
    assert read(path).images[4] == Path("images/000000004.jpg")


@pytest.mark.parametrize("ending", ["mat", "json", "h5"])
def test_instances_are_recognised_by_their_keypoints(tmp_path, instances, writers, ending):
    """Whichever form they are read from, in any order, and also where a few keypoints differ."""
    rows = np.random.default_rng(1).permutation(len(instances.images))[:7]
    test_set = instances.take(rows)
    test_set.keypoints[2, :4] += 100
    writers[ending](tmp_path / f"instances.{ending}", instances)
    writers["truth"](tmp_path / "truth.mat", test_set)
    all_instances, truth = read(tmp_path / f"instances.{ending}"), read_truth(tmp_path / "truth.mat")
    assert find(all_instances, truth).tolist() == rows.tolist()
    scored = corrected(all_instances, truth)
    np.testing.assert_allclose((scored.keypoints + 1)[scored.labelled], truth.keypoints[truth.labelled])
    np.testing.assert_allclose(scored.centre, all_instances.centre[rows])
    np.testing.assert_allclose(scored.norm, test_set.norm)


def test_the_official_file_needs_the_split(tmp_path, instances, writers):
    """It names nobody in the test set; who is not in it and far from others is trained on."""
    writers["mat"](tmp_path / "mpii_human_pose_v1_u12_1.mat", instances, crowded=(3, 5, 19))
    with pytest.raises(InputError, match="beside mpii_human_pose_v1_u12_1"):
        read_mpii(tmp_path)
    writers["truth"](tmp_path / "detections_our_format.mat", instances.take(np.array([19, 2, 7])))
    train, test = read_mpii(tmp_path)
    assert [path.name for path in test.images] == [instances.images[i] for i in (19, 2, 7)]
    expected = [name for i, name in enumerate(instances.images) if i not in (2, 3, 5, 7, 19)]
    assert [path.name for path in train.images] == expected


@pytest.mark.parametrize("ending", ["json", "h5"])
def test_all_forms_give_the_same_test_set_instances(tmp_path, instances, writers, ending):
    for name, rows in (("train", np.arange(14)), ("valid", np.arange(14, 20))):
        writers[ending](tmp_path / f"{name}.{ending}", instances.take(rows))
    writers["truth"](tmp_path / "gt_valid.mat", instances.take(np.arange(14, 20)))
    _, test = read_mpii(tmp_path)
    assert np.array_equal(test.labelled, instances.labelled[14:])
    np.testing.assert_allclose((test.keypoints + 1)[test.labelled], instances.keypoints[14:][test.labelled])
    np.testing.assert_allclose(test.norm, instances.norm[14:])
    np.testing.assert_allclose(test.side, 250 * instances.scale[14:])


def test_a_stranger_is_not_recognised(tmp_path, instances, writers):
    """Not even one with some keypoints at the same place as somebody's."""
    writers["json"](tmp_path / "instances.json", instances.take(np.arange(10)))
    test_set = instances.take(np.arange(8, 12))
    test_set.keypoints[3, :6] = instances.keypoints[0, :6]
    writers["truth"](tmp_path / "truth.mat", test_set)
    found = find(read(tmp_path / "instances.json"), read_truth(tmp_path / "truth.mat"))
    assert found.tolist() == [8, 9, -1, -1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "not a list of instances"),
        ("[]", "nobody with a labelled keypoint"),
        ('[{"image": "a"}]', "person 0: expected a file with image, center, scale.*no 'center'"),
        ("[7]", "person 0"),
    ],
)
def test_other_json(tmp_path, content, words):
    (tmp_path / "instances.json").write_text(content)
    with pytest.raises(InputError, match=words):
        read(tmp_path / "instances.json")


def test_json_with_other_keypoints(tmp_path, instances, writers):
    path = tmp_path / "instances.json"
    writers["json"](path, instances)
    path.write_text(path.read_text().replace("[[", "[[5, 6], [", 1))
    with pytest.raises(InputError, match="person 0: expected MPII's annotations"):
        read(path)


def test_other_mat_and_h5(tmp_path):
    scipy.io.savemat(tmp_path / "instances.mat", {"keypoints": np.zeros(3)})
    with pytest.raises(InputError, match="no 'RELEASE' but 'keypoints'"):
        read(tmp_path / "instances.mat")
    scipy.io.savemat(tmp_path / "instances.mat", {"RELEASE": {"annolist": np.zeros(3)}})
    with pytest.raises(InputError, match="built otherwise"):
        read(tmp_path / "instances.mat")
    with h5py.File(tmp_path / "instances.h5", "w") as file:
        file.update({"imgname": [b"a"], "center": [0], "scale": [1], "part": [0], "normalize": [1]})
    with pytest.raises(InputError, match="arrays of shapes"):
        read(tmp_path / "instances.h5")


def test_instances_of_unknown_scale(tmp_path, instances, writers):
    some = instances.take(np.arange(4))
    some.scale[2] = -1
    writers["json"](tmp_path / "instances.json", some)
    assert [path.name for path in read(tmp_path / "instances.json").images] == [
        some.images[i] for i in (0, 1, 3)
    ]


def test_a_box_that_is_not_finite(tmp_path, instances, writers):
    broken = instances.take(np.arange(3))
    broken.scale[1] = np.nan
    writers["json"](tmp_path / "instances.json", broken)
    with pytest.raises(InputError, match="no finite box or keypoints for person 1 in 000000001"):
        read(tmp_path / "instances.json")


def test_real_crops_are_the_same_image_from_both_sources(real_data):
    folder = real_data / "mpii"
    raw = read_mpii_json(folder / "test_mpii.json", folder / "images")
    adjusted = read_mpii_h5(folder / "valid.h5", folder / "images").take(range(5))
    assert raw.images == adjusted.images
    np.testing.assert_allclose(raw.norm, adjusted.norm, rtol=1e-5)
    for i in range(5):
        image = read_image(raw.images[i], 3)
        matrices = [crop_matrix(instances.centre[i], instances.side[i], 256) for instances in (raw, adjusted)]
        crops = [warp(image, matrix, 256).astype(int) for matrix in matrices]
        assert np.abs(crops[0] - crops[1]).max() <= 1
        assert crops[0].std() > 20
        keypoints = transform(raw.keypoints[i][raw.labelled[i]], matrices[0])
        assert keypoints.min() > 20
        assert keypoints.max() < 236


def test_real_instances_are_all_recognised(real_data):
    folder = real_data / "mpii"
    truth = read_truth(folder / "detections_our_format.mat")
    instances = read_mpii_h5(folder / "valid.h5", folder / "images")
    assert np.array_equal(find(instances, truth), np.arange(2958))
    np.testing.assert_allclose(instances.norm, truth.norm, atol=1e-4)
