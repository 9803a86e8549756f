"""PCK over batches and processes is the score of all decoded heatmaps."""

import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection

from bitfactor.common.errors import InputError
from bitfactor.pose import LSP, MPII, decode, encode
from bitfactor.pose.pck import pck, pckh, score
from bitfactor.training.metrics import PCK, PCKh

METRICS = {"pckh": (PCKh, MPII, pckh), "pck": (PCK, LSP, pck)}


@pytest.fixture(params=METRICS)
def case(request):
    """A metric, heatmaps for it with errors, and the target."""
    kind, skeleton, convention = METRICS[request.param]
    rng = np.random.default_rng(0)
    keypoints = rng.uniform(20, 108, (10, len(skeleton.keypoints), 2)).astype(np.float32)
    wrong = keypoints + rng.normal(0, 5, keypoints.shape)
    maps, _ = encode(wrong, np.ones(wrong.shape[:2], bool), (32, 32), 4)
    target = {
        "keypoints": torch.from_numpy(keypoints),
        "labelled": torch.from_numpy(rng.random(keypoints.shape[:2]) < 0.8),
        "norm": torch.from_numpy(rng.uniform(10, 40, 10).astype(np.float32)),
    }
    target["norm"][3] = float("nan")
    return request.param, kind, convention(skeleton), torch.from_numpy(maps), target


def parts(maps, target, size):
    for start in range(0, len(maps), size):
        chosen = slice(start, start + size)
        yield maps[chosen], {name: tensor[chosen] for name, tensor in target.items()}


def test_it_is_the_score_of_the_decoded_heatmaps(case):
    name, kind, convention, maps, target = case
    metric = kind()
    metric.update(maps, target)
    arrays = [target[key].numpy() for key in ("keypoints", "labelled", "norm")]
    expected = score(decode(maps.numpy(), 4)[0], *arrays, convention)
    assert np.array_equal(metric.score().correct, expected.correct)
    values = metric.compute()
    headline, fine = convention.thresholds
    assert 0.1 < values[name] < 0.99
    assert values[name] == values[f"{name}_plain@{headline}"] == expected.means()["plain"][0]
    assert values[f"{name}_pooled@{fine}"] == expected.means()["pooled"][1]
    assert values[f"{name}_weighted@{headline}"] == expected.means()["weighted"][0]


def test_maps_are_decoded_by_their_scale(case):
    _, kind, convention, maps, target = case
    maps = maps.clamp_min(1e-30).log()
    metric = kind(scale="softmax")
    metric.update(maps, target)
    arrays = [target[key].numpy() for key in ("keypoints", "labelled", "norm")]
    expected, other = (
        score(decode(maps.numpy(), 4, scale)[0], *arrays, convention).correct
        for scale in ("softmax", "linear")
    )
    assert np.array_equal(metric.score().correct, expected)
    assert not np.array_equal(expected, other)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_batches_do_not_matter(case, size):
    _, kind, _, maps, target = case
    whole, split = kind(), kind()
    whole.update(maps, target)
    for part in parts(maps, target, size):
        split.update(*part)
    assert whole.compute() == split.compute()


def test_counts_of_processes_are_added(case):
    _, kind, _, maps, target = case
    whole, *shares = kind(), kind(), kind()
    whole.update(maps, target)
    for metric, part in zip(shares, parts(maps, target, 5), strict=True):
        metric.update(*part)
    total = shares[0].metric_state["correct"] + shares[1].metric_state["correct"]
    assert torch.equal(total, whole.metric_state["correct"])
    assert {reduction.__name__ for reduction in whole._reductions.values()} == {"dim_zero_sum"}


def test_a_collection_lists_its_values(case):
    name, kind, _, maps, target = case
    metrics = MetricCollection({"any": kind()})
    metrics.update(maps, target)
    assert float(metrics.compute()[name]) == kind_value(kind, maps, target, name)


def kind_value(kind, maps, target, name):
    metric = kind()
    metric.update(maps, target)
    return float(metric.compute()[name])


def test_nothing_seen_is_nan(case):
    name, kind, _, maps, target = case
    metric = kind()
    nothing = {key: tensor[:0] for key, tensor in target.items()}
    metric.update(maps[:0], nothing)
    assert metric.compute()[name].isnan()


def test_half_precision(case):
    name, kind, _, maps, target = case
    metric = kind()
    metric.update(maps.bfloat16(), target)
    assert abs(metric.compute()[name] - kind_value(kind, maps, target, name)) < 0.15


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda maps, target: (maps * float("nan"), target), "maps: expected finite heatmaps .* found NaN"),
        (lambda maps, target: (maps[:, :3], target), r"maps: expected .* found shape \(10, 3, 32, 32\)"),
        (lambda maps, target: (maps[0], target), "maps: expected finite heatmaps"),
        (lambda maps, target: (maps.numpy(), target), "maps: expected a Tensor"),
        (
            lambda maps, target: (maps, {"keypoints": target["keypoints"]}),
            "target: expected .* found no labelled",
        ),
        (lambda maps, target: (maps, target["keypoints"]), "target: expected a dict"),
    ],
)
def test_what_cannot_be_counted(case, change, said):
    _, kind, _, maps, target = case
    with pytest.raises(InputError, match=said):
        kind().update(*change(maps, target))


@pytest.mark.parametrize("options", [{"stride": 0}, {"stride": "4"}, {"scale": "logit"}, {"skeleton": "lsp"}])
def test_wrong_options(case, options):
    with pytest.raises(InputError):
        case[1](**options)
