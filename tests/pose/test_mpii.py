from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from bitfactor.data.mpii import read_mpii
from bitfactor.errors import InputError
from bitfactor.images import read_image
from bitfactor.pose import crop_matrix, transform, warp
from bitfactor.pose.mpii import corrected, find, read_mpii_h5, read_mpii_json, read_mpii_mat, read_truth


def read(path):
    if path.suffix == ".mat":
        return read_mpii_mat(path, Path("images"))[0]
    return {".json": read_mpii_json, ".h5": read_mpii_h5}[path.suffix](path, Path("images"))


@pytest.mark.parametrize("ending", ["mat", "json", "h5"])
def test_all_forms_hold_the_same_people(tmp_path, people, writers, ending):
    """Centre and scale are adjusted once, in whatever form; pixels count from 0."""
    path = tmp_path / f"people.{ending}"
    writers[ending](path, people)
    found = read(path)
    assert found.images == tuple(Path("images") / name for name in people.images)
    np.testing.assert_allclose(found.centre[:, 0], people.centre[:, 0] - 1)
    np.testing.assert_allclose(found.centre[:, 1], people.centre[:, 1] + 15 * people.scale - 1)
    np.testing.assert_allclose(found.side, 250 * people.scale)
    assert np.array_equal(found.labelled, people.labelled)
    difference = np.abs(found.joints - (people.joints - 1))[people.labelled]
    assert difference.max() < (1 if ending == "h5" else 1e-9)
    head = people.labelled[:, 8:10].all(1)
    assert not head.all()
    np.testing.assert_allclose(found.norm[head], people.norm[head])
    if ending == "json":  # the only form that holds no size of the head
        assert np.isnan(found.norm[~head]).all()
    else:
        np.testing.assert_allclose(found.norm, people.norm)


def test_people_far_from_others(tmp_path, people, writers):
    writers["mat"](tmp_path / "people.mat", people, crowded=(3, 5))
    _, single = read_mpii_mat(tmp_path / "people.mat", Path("images"))
    assert np.flatnonzero(~single).tolist() == [3, 5]


def test_names_as_character_codes(tmp_path, people, writers):
    path = tmp_path / "people.h5"
    writers["h5"](path, people)
    with h5py.File(path, "r+") as file:
        del file["imgname"]
        file["imgname"] = np.array([[*name.encode(), 0, 0] for name in people.images], float)
    assert read(path).images[4] == Path("images/000000004.jpg")


@pytest.mark.parametrize("ending", ["mat", "json", "h5"])
def test_people_are_recognised_by_their_joints(tmp_path, people, writers, ending):
    """Whichever form they are read from, in any order, and also where a few joints differ."""
    rows = np.random.default_rng(1).permutation(len(people.images))[:7]
    held_out = people.take(rows)
    held_out.joints[2, :4] += 100
    writers[ending](tmp_path / f"people.{ending}", people)
    writers["truth"](tmp_path / "truth.mat", held_out)
    all_people, truth = read(tmp_path / f"people.{ending}"), read_truth(tmp_path / "truth.mat")
    assert find(all_people, truth).tolist() == rows.tolist()
    scored = corrected(all_people, truth)
    np.testing.assert_allclose((scored.joints + 1)[scored.labelled], truth.joints[truth.labelled])
    np.testing.assert_allclose(scored.centre, all_people.centre[rows])
    np.testing.assert_allclose(scored.norm, held_out.norm)


def test_the_official_file_needs_the_split(tmp_path, people, writers):
    """It names nobody held out; who is not held out and far from others is trained on."""
    writers["mat"](tmp_path / "mpii_human_pose_v1_u12_1.mat", people, crowded=(3, 5, 19))
    with pytest.raises(InputError, match="beside mpii_human_pose_v1_u12_1"):
        read_mpii(tmp_path)
    writers["truth"](tmp_path / "detections_our_format.mat", people.take(np.array([19, 2, 7])))
    train, test = read_mpii(tmp_path)
    assert [path.name for path in test.images] == [people.images[i] for i in (19, 2, 7)]
    expected = [name for i, name in enumerate(people.images) if i not in (2, 3, 5, 7, 19)]
    assert [path.name for path in train.images] == expected


@pytest.mark.parametrize("ending", ["json", "h5"])
def test_all_forms_give_the_same_held_out_people(tmp_path, people, writers, ending):
    for name, rows in (("train", np.arange(14)), ("valid", np.arange(14, 20))):
        writers[ending](tmp_path / f"{name}.{ending}", people.take(rows))
    writers["truth"](tmp_path / "gt_valid.mat", people.take(np.arange(14, 20)))
    _, test = read_mpii(tmp_path)
    assert np.array_equal(test.labelled, people.labelled[14:])
    np.testing.assert_allclose((test.joints + 1)[test.labelled], people.joints[14:][test.labelled])
    np.testing.assert_allclose(test.norm, people.norm[14:])
    np.testing.assert_allclose(test.side, 250 * people.scale[14:])


def test_a_stranger_is_not_recognised(tmp_path, people, writers):
    """Not even one with some joints at the same place as somebody's."""
    writers["json"](tmp_path / "people.json", people.take(np.arange(10)))
    held_out = people.take(np.arange(8, 12))
    held_out.joints[3, :6] = people.joints[0, :6]
    writers["truth"](tmp_path / "truth.mat", held_out)
    found = find(read(tmp_path / "people.json"), read_truth(tmp_path / "truth.mat"))
    assert found.tolist() == [8, 9, -1, -1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "not a list of people"),
        ("[]", "nobody with a labelled joint"),
        ('[{"image": "a"}]', "person 0: expected a file with image, center, scale.*no 'center'"),
        ("[7]", "person 0"),
    ],
)
def test_other_json(tmp_path, content, words):
    (tmp_path / "people.json").write_text(content)
    with pytest.raises(InputError, match=words):
        read(tmp_path / "people.json")


def test_json_with_other_joints(tmp_path, people, writers):
    path = tmp_path / "people.json"
    writers["json"](path, people)
    path.write_text(path.read_text().replace("[[", "[[5, 6], [", 1))
    with pytest.raises(InputError, match="person 0: expected MPII's annotations"):
        read(path)


def test_other_mat_and_h5(tmp_path):
    scipy.io.savemat(tmp_path / "people.mat", {"joints": np.zeros(3)})
    with pytest.raises(InputError, match="no 'RELEASE' but 'joints'"):
        read(tmp_path / "people.mat")
    scipy.io.savemat(tmp_path / "people.mat", {"RELEASE": {"annolist": np.zeros(3)}})
    with pytest.raises(InputError, match="built otherwise"):
        read(tmp_path / "people.mat")
    with h5py.File(tmp_path / "people.h5", "w") as file:
        file.update({"imgname": [b"a"], "center": [0], "scale": [1], "part": [0], "normalize": [1]})
    with pytest.raises(InputError, match="arrays of shapes"):
        read(tmp_path / "people.h5")


def test_people_of_unknown_scale(tmp_path, people, writers):
    some = people.take(np.arange(4))
    some.scale[2] = -1
    writers["json"](tmp_path / "people.json", some)
    assert [path.name for path in read(tmp_path / "people.json").images] == [
        some.images[i] for i in (0, 1, 3)
    ]


def test_a_box_that_is_not_finite(tmp_path, people, writers):
    broken = people.take(np.arange(3))
    broken.scale[1] = np.nan
    writers["json"](tmp_path / "people.json", broken)
    with pytest.raises(InputError, match="no finite box or joints for person 1 in 000000001"):
        read(tmp_path / "people.json")


def test_real_crops_are_the_same_image_from_both_sources(real_data):
    folder = real_data / "mpii"
    raw = read_mpii_json(folder / "test_mpii.json", folder / "images")
    adjusted = read_mpii_h5(folder / "valid.h5", folder / "images").take(range(5))
    assert raw.images == adjusted.images
    np.testing.assert_allclose(raw.norm, adjusted.norm, rtol=1e-5)
    for i in range(5):
        image = read_image(raw.images[i], 3)
        matrices = [crop_matrix(people.centre[i], people.side[i], 256) for people in (raw, adjusted)]
        crops = [warp(image, matrix, 256).astype(int) for matrix in matrices]
        assert np.abs(crops[0] - crops[1]).max() <= 1
        assert crops[0].std() > 20
        joints = transform(raw.joints[i][raw.labelled[i]], matrices[0])
        assert joints.min() > 20
        assert joints.max() < 236


def test_real_people_are_all_recognised(real_data):
    folder = real_data / "mpii"
    truth = read_truth(folder / "detections_our_format.mat")
    people = read_mpii_h5(folder / "valid.h5", folder / "images")
    assert np.array_equal(find(people, truth), np.arange(2958))
    np.testing.assert_allclose(people.norm, truth.norm, atol=1e-4)
