"""A pose network from training to the page of instances: run and file, table, JSON, mirror images."""

import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.io

from bitfactor.api.network import network_at
from bitfactor.api.poses import find_keypoints, instances_of
from bitfactor.api.report import run_document
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.data import Lsp, identity_of
from bitfactor.data.readers.instances import CropMovement
from bitfactor.format.file import load
from bitfactor.pose import LSP

from .conftest import write

SMALL = ["--size", "32", "--channels", "8", "--depth", "1", "--batch-size", "4", "--epochs", "1"]


@pytest.fixture(scope="session")
def instances(tmp_path_factory):
    """Twenty images of noise in the layout of LSP extended, ten of them the test set."""
    directory, rng = tmp_path_factory.mktemp("lsp"), np.random.default_rng(0)
    (directory / "images").mkdir()
    for i in range(20):
        image = rng.integers(0, 255, (40, 60, 3)).astype(np.uint8)
        write(directory / "images" / f"im{i + 1:05d}.jpg", image)
    keypoints = rng.uniform(1, 40, (14, 3, 20))
    keypoints[:, 2] = 1
    keypoints[0, 2, 5:15] = 0
    scipy.io.savemat(directory / "joints.mat", {"joints": keypoints})
    return directory


@pytest.fixture(scope="session")
def pose_run(instances, tmp_path_factory):
    """The directory of a short training run, with the file exported from it."""
    path = tmp_path_factory.mktemp("poses") / "run"
    assert main(["train", "lsp-hourglass-small", "--data", str(instances), "--out", str(path), *SMALL]) == 0
    assert main(["export", str(path), "-o", str(path / "net.safetensors")]) == 0
    return path


def evaluated(capsys, *arguments):
    capsys.readouterr()
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("flags", [(), ("--flip",)])
def test_run_and_file_give_the_same(pose_run, instances, capsys, flags):
    run, file = (
        evaluated(capsys, path, "--data", instances, *flags)
        for path in (pose_run, pose_run / "net.safetensors")
    )
    assert run["instances"] == 10
    assert run["labelled"] == file["labelled"] == [5, *[10] * 13]
    means = [result["pck"]["0.2"]["means"]["plain"] for result in (run, file)]
    assert means[0] == pytest.approx(means[1], abs=0.02)


def test_mirror_images_of_keypoints_without_partners_are_refused(pose_run, instances):
    """As in training, which does not mirror them; a `skeleton.json` may say that there are no pairs."""
    found = instances_of(network_at(pose_run), instances)
    alone = replace(found.data.skeleton, flip_pairs=())
    data = replace(found.data, skeleton=alone, movement=CropMovement(mirror=False))
    with pytest.raises(InputError, match=r"--flip.*'right_ankle' has no partner"):
        find_keypoints(replace(found, data=data), flip=True)
    said = replace(data, movement=CropMovement(mirror=True))
    assert find_keypoints(replace(found, data=said), flip=True).flip


def test_the_log_holds_the_same_and_says_how_high_the_maps_are(pose_run, instances, capsys):
    (row,) = map(json.loads, (pose_run / "log.jsonl").read_text().splitlines())
    assert row["pck"] == evaluated(capsys, pose_run, "--data", instances)["pck"]["0.2"]["means"]["plain"]
    assert 0 < row["peak"] < 1


def test_the_file_knows_its_keypoints_and_what_its_maps_mean(pose_run):
    model = load(pose_run / "net.safetensors")
    assert model.skeleton == LSP
    assert model.provenance["heatmaps"] == "softmax"


def test_the_table_names_every_group_and_mean(pose_run, instances, capsys):
    assert main(["evaluate", str(pose_run), "--data", str(instances), "--limit", "4"]) == 0
    text = capsys.readouterr().out
    for name in ("Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle", "plain", "weighted", "pooled"):
        assert name in text
    assert "the first 4 of 10 instances of the test set" in text


def test_the_page_shows_instances_and_needs_nothing_outside(pose_run, instances, tmp_path):
    page = tmp_path / "poses.html"
    assert main(["evaluate", str(pose_run), "--data", str(instances), "--page", str(page)]) == 0
    sources = []

    class Page(HTMLParser):
        def handle_starttag(self, tag, attributes):
            sources.extend(value for key, value in attributes if key in ("src", "href"))

    Page().feed(page.read_text())
    assert len(sources) == 27
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert all(f"<h2>{title}</h2>" in page.read_text() for title in ("Best", "In the middle", "Worst"))


def test_keypoints_on_a_photo(pose_run, instances, tmp_path, capsys):
    photo = instances / "images" / "im00020.jpg"
    capsys.readouterr()
    command = ["predict", str(pose_run / "net.safetensors"), str(photo), "-o", str(tmp_path / "pose.png")]
    assert main([*command, "--json"]) == 0
    (pose,) = json.loads(capsys.readouterr().out)["poses"]
    assert [keypoint["keypoint"] for keypoint in pose["keypoints"]] == list(LSP.keypoints)
    assert all(0 < keypoint["confidence"] <= 1 for keypoint in pose["keypoints"])
    assert (tmp_path / "pose.png").exists()


def test_no_confusion_of_keypoints(pose_run, instances, refused, tmp_path):
    line = refused("evaluate", pose_run, "--data", instances, "--confusion", tmp_path / "confusion.png")
    assert "--confusion: expected a network that classifies" in line


def test_it_says_who_was_evaluated_and_notices_others(pose_run, instances, capsys, tmp_path):
    found = evaluated(capsys, pose_run, "--data", instances)
    assert (found["images"], found["notes"]) == (f"10 instances of the test set in {instances}", [])
    run = shutil.copytree(pose_run, tmp_path / "run")
    settings = json.loads((run / "recipe.json").read_text())
    settings["data_identity"] = identity_of(Lsp.load(instances, size=32), instances)
    (run / "recipe.json").write_text(json.dumps(settings))
    assert evaluated(capsys, run) == found
    settings["data_identity"]["fingerprint"] = 32 * "0"
    (run / "recipe.json").write_text(json.dumps(settings))
    assert evaluated(capsys, run)["notes"] == ["other images than it was trained with"]
    assert main(["evaluate", str(run), "--limit", "0"]) == 2
    assert "--limit: expected 1 or more" in capsys.readouterr().err


def test_the_report_of_a_run_shows_keypoints_and_people(pose_run, tmp_path):
    made = run_document(pose_run, None)
    titles = [chapter.title for chapter in made.chapters]
    assert titles[0].startswith("Keypoints found: PCK@0.2")
    assert titles[1:5] == ["Best", "In the middle", "Worst", "Training"]
    assert all(len(chapter.figures) == 4 for chapter in made.chapters[1:4])
