"""PCK and PCKh are the published scores, and those counted by hand."""

import math

import numpy as np
import pytest

from bitfactor.common.errors import InputError
from bitfactor.data.readers.mpii import read_predictions, read_truth
from bitfactor.pose import COCO, LSP, MPII
from bitfactor.pose.pck import groups_of, pck, pckh, score

GROUPS = {
    "Head": (9,),
    "Shoulder": (12, 13),
    "Elbow": (11, 14),
    "Wrist": (10, 15),
    "Hip": (2, 3),
    "Knee": (1, 4),
    "Ankle": (0, 5),
}

# Published predictions: PCKh@0.5 of the groups, the three means, and the weighted mean of PCKh@0.1.
GOLDEN = {
    "bearpaw-hg_s2_b1.mat": (
        [95.80, 94.57, 88.12, 83.31, 86.24, 80.88, 77.44],
        {"plain": 86.76, "weighted": 87.30, "pooled": 88.20},
        23.91,
    ),
    "newell.h5": (
        [95.94, 95.19, 89.14, 84.17, 86.97, 83.20, 80.37],
        {"plain": 87.98, "weighted": 88.43, "pooled": 89.25},
        21.59,
    ),
}


@pytest.mark.parametrize("file", GOLDEN)
def test_published_predictions_have_the_published_scores(real_data, file):
    groups, means, fine = GOLDEN[file]
    truth = read_truth(real_data / "mpii" / "detections_our_format.mat")
    predicted = read_predictions(real_data / "mpii" / file)
    found = score(predicted, truth.keypoints, truth.labelled, truth.norm, pckh())
    assert [round(100 * values[0], 2) for values in found.groups().values()] == groups
    assert {name: round(100 * values[0], 2) for name, values in found.means().items()} == means
    assert round(100 * found.means()["weighted"][1], 2) == fine


def two_instances():
    """Two instances, heads of size 10 and 20: hand-made errors, all other joints exact."""
    true = np.random.default_rng(0).uniform(0, 100, (2, 16, 2))
    predicted = true.copy()
    labelled = np.ones((2, 16), bool)
    predicted[0, 9, 0] += 5.1  # head: more than half of 10
    predicted[1, 9, 1] += 5.1  # less than half of 20, more than a tenth
    predicted[0, 10] += 300  # right wrist
    predicted[:, 6] += 300  # pelvis: in the pooled mean alone
    labelled[0, 15] = False  # a left wrist is not labelled, and found nowhere
    predicted[0, 15] = np.nan
    return predicted, true, labelled, np.array([10.0, 20.0])


def test_counted_by_hand():
    found = score(*two_instances(), pckh())
    assert found.labelled.tolist() == [2] * 15 + [1]
    assert found.rates()[0, [6, 9, 10, 15]].tolist() == [0, 0.5, 0.5, 1]
    assert found.groups()["Head"] == [0.5, 0]
    assert found.groups()["Wrist"] == [0.75, 0.75]
    means = found.means()
    np.testing.assert_allclose(means["plain"], [(14 - 1) / 14, (14 - 1.5) / 14])
    np.testing.assert_allclose(means["weighted"], [25 / 27, 24 / 27])
    np.testing.assert_allclose(means["pooled"], [27 / 31, 26 / 31])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_prediction_that_is_no_number_is_wrong(bad):
    predicted, true, labelled, norm = two_instances()
    predicted[1, 0, 1] = bad
    found = score(predicted, true, labelled, norm, pckh())
    assert found.labelled[0] == 2
    assert found.rates()[0, 0] == 0.5


@pytest.mark.parametrize("unknown", [np.nan, 0.0, np.inf, -3.0])
def test_a_person_without_size_is_left_out(unknown):
    predicted, true, labelled, _ = two_instances()
    found = score(predicted, true, labelled, np.array([unknown, 20.0]), pckh())
    alone = score(predicted[1:], true[1:], labelled[1:], np.array([20.0]), pckh())
    assert np.array_equal(found.correct, alone.correct)
    assert np.array_equal(found.labelled, alone.labelled)


def test_a_joint_never_labelled_is_in_no_mean():
    predicted, true, labelled, norm = two_instances()
    labelled[:, [9, 0]] = False
    found = score(predicted, true, labelled, norm, pckh())
    assert np.isnan(found.rates()[:, 9]).all()
    assert math.isnan(found.groups()["Head"][0])
    assert found.groups()["Ankle"] == [1, 1]  # of the left one
    np.testing.assert_allclose(found.means()["plain"][0], 11.5 / 12)


def test_nobody():
    nothing = score(np.zeros((0, 16, 2)), np.zeros((0, 16, 2)), np.zeros((0, 16), bool), np.zeros(0), pckh())
    assert all(math.isnan(value) for values in nothing.means().values() for value in values)


def test_exactly_at_the_threshold_counts():
    true = np.zeros((1, 14, 2))
    found = score(true + np.array([2.0, 0]), true, np.ones((1, 14), bool), np.array([10.0]), pck())
    assert found.means()["plain"] == [1, 0]


def test_scale_does_not_matter():
    predicted, true, labelled, norm = two_instances()
    a, b = (score(predicted * s, true * s, labelled, norm * s, pckh()) for s in (1, 0.25))
    assert np.array_equal(a.correct, b.correct)


def test_groups_of_any_skeleton():
    assert groups_of(MPII) == GROUPS
    assert groups_of(LSP)["Head"] == (12, 13)
    coco = groups_of(COCO)
    assert coco["nose"] == (0,)
    assert coco["eye"] == (1, 2)
    assert sorted(joint for group in coco.values() for joint in group) == list(range(17))


def test_shapes_that_do_not_fit():
    predicted, true, labelled, norm = two_instances()
    with pytest.raises(InputError, match=r"file: expected joints of shape \(2, 16, 2\).*found shape \(1, 16"):
        score(predicted[:1], true, labelled, norm, pckh(), "file")
