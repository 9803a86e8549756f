"""Heatmaps: losses whose values are known, the trap of empty maps, and figures of sticks that are found."""

import json
import math
from dataclasses import replace
from functools import partial
from typing import get_args

import cv2
import numpy as np
import pytest
import torch
from rich.console import Console

from bitfactor.data import Mpii
from bitfactor.pose import MPII, encode
from bitfactor.recipes import recipe_named
from bitfactor.training import Optimization, PoseEstimation, step, train
from bitfactor.training.metrics import PCK, Peak
from bitfactor.training.tasks import Criterion

CRITERIA = get_args(Criterion)


def target(n=2, keypoints=3, size=16, seed=0):
    """Keypoints in the middle of cells of 16 x 16 maps; the last of each person is not labelled."""
    rng = np.random.default_rng(seed)
    places = 4.0 * rng.integers(3, size - 3, (n, keypoints, 2)) + 1.5
    labelled = np.ones((n, keypoints), bool)
    labelled[:, -1] = False
    heatmaps, weight = encode(places, labelled, (size, size), 4)
    named = {"heatmaps": heatmaps, "weight": weight, "keypoints": places, "labelled": labelled}
    named["norm"] = np.full(n, 20.0)
    return {name: torch.from_numpy(array) for name, array in named.items()}


def ideal(criterion, heatmaps):
    """The maps that a perfect network gives."""
    return {
        "mse": heatmaps,
        "bce": torch.logit(heatmaps.double(), 1e-9).float(),
        "softmax": heatmaps.clamp_min(1e-30).log(),
    }[criterion]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_ideal_maps_have_the_least_loss_and_peaks_of_1(criterion):
    task, aim = PoseEstimation(criterion=criterion), target()
    maps = ideal(criterion, aim["heatmaps"]).requires_grad_()
    loss = task.loss(maps, aim)
    loss.backward()
    assert maps.grad.abs().max() < 1e-5
    assert task.loss(maps + 0.1 * torch.randn_like(maps), aim) > loss
    peak = Peak(task.scale)
    peak.update(maps.detach(), aim)
    assert float(peak.compute()) == pytest.approx(1, abs=1e-3)


def test_empty_maps_cost_what_is_known():
    empty = torch.zeros(2, 3, 16, 16)
    assert float(PoseEstimation(criterion="mse").loss(empty, target())) == pytest.approx(math.pi, rel=1e-3)
    assert float(PoseEstimation(criterion="bce").loss(empty, target())) == pytest.approx(256 * math.log(2))
    assert float(PoseEstimation(criterion="softmax").loss(empty, target())) == pytest.approx(math.log(256))


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_batch_count_by_the_keypoints_that_can_be_seen(parts):
    whole = target(n=6)
    whole["weight"][1::2, 1:] = 0
    whole["weight"][0] = 0
    task, maps = PoseEstimation(), torch.zeros_like(whole["heatmaps"], requires_grad=True)
    (expected,) = torch.autograd.grad(task.loss(maps, whole), maps)
    found = torch.zeros_like(maps)
    for i, (_, part) in enumerate(step._parts(maps, whole, parts)):
        loss = task.loss(maps[i::parts], part) * step._counted(part) / step._counted(whole)
        found += torch.autograd.grad(loss, maps)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_keypoints_without_label_do_not_matter(criterion):
    task, aim, maps = PoseEstimation(criterion=criterion), target(), torch.randn(2, 3, 16, 16)
    changed = maps.clone()
    changed[:, 2] += 7 * torch.randn(2, 16, 16)
    assert torch.equal(task.loss(maps, aim), task.loss(changed, aim))
    nobody = aim | {"weight": torch.zeros(2, 3)}
    assert float(task.loss(maps, nobody)) == 0


@pytest.mark.parametrize("criterion", CRITERIA)
def test_each_hourglass_is_supervised(criterion):
    task, aim = PoseEstimation(criterion=criterion), target()
    one, two = torch.randn(2, 2, 3, 16, 16)
    both = task.loss((one, two), aim)
    torch.testing.assert_close(both, task.loss(one, aim) + task.loss(two, aim))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_perfect_teacher_is_the_target(criterion):
    task, aim = PoseEstimation(criterion=criterion), target()
    taught = task.taught(ideal(criterion, aim["heatmaps"]), aim)
    torch.testing.assert_close(taught["heatmaps"][:, :2], aim["heatmaps"][:, :2], rtol=0, atol=2e-3)


def test_empty_maps_are_noticed():
    metrics = PoseEstimation(headline="pck", metric=partial(PCK, MPII), criterion="mse").metrics()
    aim = target(keypoints=16)
    metrics.update(1e-3 * torch.rand(2, 16, 16, 16), aim)
    with pytest.warns(UserWarning, match="heatmaps are nearly empty"):
        assert float(metrics.compute()["peak"]) < 0.05


def test_metrics_are_named_and_fractions():
    task = PoseEstimation(criterion="softmax")
    metrics = task.metrics()
    aim = target(keypoints=16)
    metrics.update(ideal("softmax", aim["heatmaps"]), aim)
    values = {name: float(value) for name, value in metrics.compute().items()}
    assert values[task.headline] == values["pckh_plain@0.5"] == 1
    assert values["peak"] == pytest.approx(1, abs=1e-3)


HEIGHT = 100.0  # pixels
# keypoint -> the keypoint it hangs on, length / height, direction in degrees, and how far that varies
BONES = {
    "pelvis": (None, 0, 0, 0),
    "thorax": ("pelvis", 0.28, -90, 15),
    "upper_neck": ("thorax", 0.06, -90, 15),
    "head_top": ("upper_neck", 0.2, -90, 25),
    "right_shoulder": ("thorax", 0.1, 180, 15),
    "right_elbow": ("right_shoulder", 0.16, 110, 60),
    "right_wrist": ("right_elbow", 0.15, 110, 60),
    "left_shoulder": ("thorax", 0.1, 0, 15),
    "left_elbow": ("left_shoulder", 0.16, 70, 60),
    "left_wrist": ("left_elbow", 0.15, 70, 60),
    "right_hip": ("pelvis", 0.07, 180, 10),
    "right_knee": ("right_hip", 0.22, 95, 25),
    "right_ankle": ("right_knee", 0.22, 95, 25),
    "left_hip": ("pelvis", 0.07, 0, 10),
    "left_knee": ("left_hip", 0.22, 85, 25),
    "left_ankle": ("left_knee", 0.22, 85, 25),
}
COLOURS = {"right": (250, 120, 40), "left": (40, 140, 250), "middle": (60, 220, 90)}


def stick_figure(rng):
    """An image (128, 128, 3), RGB, of noise with a figure of sticks in it, and its keypoints (16, 2)."""
    places = {}
    for name, (parent, length, direction, spread) in BONES.items():
        angle = np.deg2rad(direction + rng.uniform(-spread, spread))
        start = np.array([64.0, 62.0]) + rng.uniform(-6, 6, 2) if parent is None else places[parent]
        places[name] = start + length * HEIGHT * np.array([np.cos(angle), np.sin(angle)])
    image = np.ascontiguousarray(rng.integers(40, 110, (128, 128, 3)).astype(np.uint8))
    for name, (parent, *_) in BONES.items():
        if parent is not None:
            side = name.split("_")[0] if name.split("_")[0] in COLOURS else "middle"
            ends = [tuple(int(16 * value) for value in places[keypoint]) for keypoint in (parent, name)]
            cv2.line(image, *ends, COLOURS[side], 5, cv2.LINE_AA, 4)
    return image, np.array([places[name] for name in MPII.keypoints])


def made_figures(directory, *instances):
    """Write figures to train on and test images, annotated as HRNet's files are: pixels count from 1."""
    rng = np.random.default_rng(0)
    (directory / "images").mkdir()
    for name, number in zip(("train", "valid"), instances, strict=True):
        rows = []
        for i in range(number):
            image, keypoints = stick_figure(rng)
            file = f"{name}{i:04d}.png"
            assert cv2.imwrite(str(directory / "images" / file), image[..., ::-1])
            rows.append({"image": file, "scale": HEIGHT / 200, "center": [65.0, 57.0]})
            rows[-1] |= {"joints": (keypoints + 1).tolist(), "joints_vis": [1] * 16}
        (directory / f"{name}.json").write_text(json.dumps(rows))
    return directory


def small(recipe, **options):
    model = replace(recipe.model, channels=32, depth=2, activation="prelu", shortcuts="conv")
    return replace(
        recipe,
        model=model,
        input_shape=(3, 64, 64),
        data=lambda directory: Mpii.load(directory, size=64, workers=0),
        task=PoseEstimation(criterion="softmax"),
        optimization=Optimization(**{"batch_size": 16, "learning_rate": 5e-3} | options),
    )


@pytest.mark.parametrize(
    ("people", "epochs", "pckh"), [(128, 4, 0.5), pytest.param(320, 6, 0.9, marks=pytest.mark.slow)]
)
def test_figures_of_sticks_are_found(tmp_path, people, epochs, pckh):
    """A network that learned nothing finds less than one keypoint in twenty."""
    directory = made_figures(tmp_path, people, 30)
    recipe = small(recipe_named("mpii-hourglass"), epochs=epochs, precision="bfloat16", channels_last=True)
    result = train(recipe, tmp_path / "run", Console(quiet=True), data=directory)
    assert result["pckh"] >= pckh
    if pckh == 0.9:
        assert result["peak"] > 0.5
