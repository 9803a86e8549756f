"""Every recipe of classification trains, exports, runs and is measured, on a few made-up images."""

import json
import pickle

import cv2
import numpy as np
import pytest
import torch
from tests.cases import slow_beside

from bitfactor.cli import main
from bitfactor.data import Cifar10, Cifar100
from bitfactor.decompositions import JOINT, LAYERWISE
from bitfactor.recipes.runs import load
from bitfactor.runtime import Session

SMALL = ["--blocks", "1", "1", "--widths", "8", "16", "--batch-size", "16", "--epochs", "1"]
SMALL += ["--warmup-epochs", "0"]


def image(label, seed):
    """A plain colour that tells the class, and noise: (32, 32, 3) RGB."""
    noise = np.random.default_rng(seed).normal(0, 20, (32, 32, 3))
    colour = np.array([(40, 40, 200), (200, 60, 40), (60, 200, 60)][label % 3])
    return (colour + noise).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """Both CIFARs in the official layout, 16 images to a file."""
    place = tmp_path_factory.mktemp("cifar")
    for kind, classes in ((Cifar10, 10), (Cifar100, 100)):
        layout, folder = kind.layout, place / kind.layout.folder
        folder.mkdir()
        names = {layout.name_key.encode(): [f"class{i}".encode() for i in range(classes)]}
        (folder / layout.names).write_bytes(pickle.dumps(names, protocol=2))
        for number, file in enumerate((*layout.train, layout.test)):
            pixels = [image(i, 100 * number + i).transpose(2, 0, 1).ravel() for i in range(16)]
            content = {b"data": np.stack(pixels), layout.label_key.encode(): [i % 3 for i in range(16)]}
            (folder / file).write_bytes(pickle.dumps(content, protocol=2))
    return place


@pytest.fixture(scope="module")
def folder(colours, tmp_path_factory):
    """Three classes of twelve images each, some of which are the test set."""
    return colours(tmp_path_factory.mktemp("folder"), 12)


@pytest.mark.parametrize("latent", slow_beside(("none", "holistic"), (*LAYERWISE, *JOINT)))
def test_every_latent_on_the_official_batches(latent, call, cifar, tmp_path):
    out, file = tmp_path / "run", tmp_path / "net.safetensors"
    call("train", "cifar10-resnet18", "--data", cifar, "--out", out, "--latent", latent, *SMALL)
    call("export", out, "-o", file)
    scores = Session(file)(np.zeros((2, 3, 32, 32), np.float32))
    assert scores.shape == (2, 10)
    in_torch, from_file = (json.loads(call("evaluate", p, "--data", cifar, "--json")) for p in (out, file))
    assert in_torch["total"] == len(in_torch["predictions"]) == 16
    assert in_torch == from_file


def test_the_stated_trial(call, cifar, tmp_path):
    """As a user's first try: a limit, two epochs, and the same again, which finds it finished."""
    flags = ["--data", cifar, "--out", tmp_path, *SMALL, "--limit", "32", "--epochs", "2", "--json"]
    first = json.loads(call("train", "cifar10-resnet18", *flags))
    assert first["step"] == 4
    assert json.loads(call("train", "cifar10-resnet18", *flags)) == first


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--epochs 2",
            ["last for all 2 of the training: the learning rate rises, and does not fall"],
        ),
        ("--epochs 3", []),
        (
            "--epochs 5 --real-weight-epochs 2",
            ["last for all 2 of a stage: the learning rate rises, and does not fall"],
        ),
    ],
)
def test_a_warm_up_that_lasts_the_whole_training_says_so(flags, said, tmp_path, capsys):
    small = "--limit 32 --batch-size 32 --widths 8 16 --learning-rate 0.001 --warmup-epochs 2"
    assert main(["train", "digits", "--out", str(tmp_path / "run"), *flags.split(), *small.split()]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "--warmup-epochs" in line]
    assert lines == [f"{tmp_path / 'run'}: --warmup-epochs 2 {line}" for line in said]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--real"], "diagnose: expected a binary network for 4, found a real one"),
        (["--compile"], "--diagnose: expected 0 with --compile, found 4"),
        (["--diagnose=-1"], "--diagnose: expected 0 or more, found -1"),
        (["--diagnose=999"], "--diagnose: expected at most the 264 steps of this training, found 999"),
    ],
)
def test_what_cannot_be_diagnosed(tmp_path, refused, flags, said):
    command = ["train", "digits", "--out", tmp_path / "run", "--diagnose", "4", *flags]
    assert said in refused(*command)
    assert said in refused(*command, "--dry-run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_a_diagnosed_run_shows_what_steps_did(call, tmp_path):
    run = tmp_path / "run"
    flags = "--epochs 1 --limit 64 --batch-size 32 --widths 8 16 --diagnose 1"
    call("train", "digits", "--out", run, *flags.split())
    call("report", run, "-o", tmp_path / "page.md", "--format", "markdown")
    assert "What a step does to W" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("flags", [["--real"], ["--latent", "none", "--scale", "none"]])
def test_the_baselines_are_rows_of_the_same_command(flags, call, cifar, tmp_path):
    call("train", "cifar10-resnet18", "--data", cifar, "--out", tmp_path, *SMALL, *flags)
    assert json.loads(call("evaluate", tmp_path, "--data", cifar, "--json"))["total"] == 16


def test_a_float_teacher(call, cifar, tmp_path):
    command = ["train", "cifar10-resnet18", "--data", cifar, *SMALL, "--out"]
    call(*command, tmp_path / "float", "--real")
    result = json.loads(call(*command, tmp_path / "run", "--teacher", tmp_path / "float", "--json"))
    assert np.isfinite(result["loss"])


def test_features_of_a_teacher(call, cifar, tmp_path, capsys):
    command = ["train", "cifar10-resnet18", "--data", cifar, *SMALL, "--out"]
    call(*command, tmp_path / "float", "--real")
    taught = [*command, tmp_path / "run", "--teacher", tmp_path / "float", "--feature-weight"]
    assert main([str(word) for word in [*taught, 1]]) == 0
    assert "features are learned too: layer1 from layer1 (32x32), layer2" in capsys.readouterr().err
    unlike = [*command, tmp_path / "other", "--teacher", tmp_path / "float", "--feature-weight", 1]
    for flags in ("--stem imagenet --blocks 1 --widths 8", "--feature-layers layer2=layer1"):
        assert main([str(word) for word in [*unlike, *flags.split()]]) == 2
        assert "--feature-" in capsys.readouterr().err
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("scale", ["analytic", "learned"])
def test_stages_are_runs_each_taught_by_the_one_before(scale, call, cifar, tmp_path):
    """Real-to-Binary: full precision, binary activations, both; each stage has its epochs, rate and decay."""
    first, second, third = (tmp_path / name for name in "123")
    command = ["train", "cifar10-resnet18", "--data", cifar, *SMALL, "--gates", "--json", "--out"]
    call(*command, first, "--real")
    command[2:2] = ["--scale", scale]
    after = ["--from", first, "--teacher", first, "--teacher-weight", 0.75, "--feature-weight", 0.5]
    stage = [*command, second, "--no-weights", *after, "--epochs", 2, "--weight-decay", 1e-5]
    trained = json.loads(call(*stage))
    assert trained["step"] == 10
    assert json.loads(call(*stage)) == trained  # which resumes
    after = ["--from", second, "--teacher", second, "--learning-rate", 1e-12]
    call(*command, third, *after)
    before, last = (load(path) for path in (second, third))
    for name in ("layer1.0.conv1", "layer2.0.conv2"):
        ours, theirs = last.get_submodule(name), before.get_submodule(name)
        assert (ours.binary_weights, theirs.binary_weights) == (True, False)
        torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(ours.alpha(), theirs.alpha(), rtol=1e-3, atol=1e-5)
    for run in (second, third):
        file = tmp_path / f"{run.name}.safetensors"
        call("export", run, "-o", file)
        found = [json.loads(call("evaluate", p, "--data", cifar, "--json")) for p in (run, file)]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("recipe", "size", "classes"),
    slow_beside(
        [("imagenet-resnet18", 48, 3)],  # tests/api has those of a folder
        [("cifar100-resnet18", 32, 100), ("folder-resnet18", 48, 3), ("imagenet-resnet18", 48, 3)],
    ),
)
def test_the_other_recipes(recipe, size, classes, call, cifar, folder, tmp_path):
    """The folder and ImageNet take the number of classes from the data; a file needs the data no more."""
    data = cifar if "cifar" in recipe else folder
    flags = SMALL if "cifar" in recipe else [*SMALL, "--size", str(size)]
    out, file = tmp_path / "run", tmp_path / "net.safetensors"
    call("train", recipe, "--data", data, "--out", out, "--latent", "tucker", *flags)
    call("export", out, "-o", file)
    assert Session(file)(np.zeros((1, 3, size, size), np.float32)).shape == (1, classes)
    assert json.loads(call("evaluate", file, "--data", data, "--json"))["total"] > 2
    photo = folder / "red" / "0.png"
    (result,) = json.loads(call("predict", file, photo, "--json"))["images"]
    labels = ["blue", "green", "red"] if classes == 3 else [f"class{i}" for i in range(100)]
    assert result["classes"][0]["label"] in labels


@pytest.mark.parametrize(
    "recipe",
    slow_beside(["cifar10-resnet18"], ["cifar10-resnet18", "imagenet-resnet18", "folder-resnet18"]),
)
def test_summary_counts_what_is_binary(recipe, call):
    figures = json.loads(call("summary", recipe, "--json"))
    assert figures["binary_fraction"] > 0.9
    assert json.loads(call("summary", recipe, "--real", "--json"))["binary_fraction"] == 0


def test_dry_run_writes_nothing(call, cifar, tmp_path):
    flags = ["--data", cifar, "--out", tmp_path / "run", *SMALL, "--dry-run"]
    assert "nothing was written" in call("train", "cifar10-resnet18", *flags)
    assert json.loads(call("train", "cifar10-resnet18", *flags, "--json"))["steps"] == 5
    assert list(tmp_path.iterdir()) == []


def test_confusion_is_drawn(call, cifar, tmp_path):
    call("train", "cifar10-resnet18", "--data", cifar, "--out", tmp_path / "run", *SMALL)
    shown = call("evaluate", tmp_path / "run", "--data", cifar, "--confusion", tmp_path / "confusion.png")
    assert cv2.imread(str(tmp_path / "confusion.png")).shape[0] > 300
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["class0", "class1", "class2"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--data: expected the directory that holds cifar-10-batches-py/, found none"),
        (["--data", "nowhere"], "nowhere: expected the directory that holds cifar-10-batches-py/, found no"),
        (["--data", "DATA", "--widths", "8"], "--widths: expected 4 numbers above 0, as many as --blocks"),
        (
            ["--data", "DATA", "--teacher", "nowhere"],
            "--teacher nowhere: expected one of the directory of a run, zoo:",
        ),
        (["--data", "DATA", "--teacher", __file__], "--teacher: expected FILE.py:NAME, found"),
        (["--data", "DATA", "--batch-norm", "synchronised"], "--batch-norm synchronised: expected GPUs"),
    ],
)
def test_what_is_missing_or_wrong_is_said(flags, message, cifar, tmp_path, capsys):
    flags = [str(cifar) if flag == "DATA" else flag for flag in flags]
    assert main(["train", "cifar10-resnet18", "--out", str(tmp_path / "run"), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_evaluation_on_other_classes_is_refused(cifar, folder, tmp_path, capsys):
    flags = ["--out", str(tmp_path), "--size", "32", *SMALL]
    assert main(["train", "folder-resnet18", "--data", str(folder), *flags]) == 0
    (folder / "white").mkdir()
    cv2.imwrite(str(folder / "white" / "0.png"), np.full((32, 32, 3), 255, np.uint8))
    try:
        assert main(["evaluate", str(tmp_path), "--data", str(folder)]) == 2
    finally:
        (folder / "white" / "0.png").unlink()
        (folder / "white").rmdir()
    assert "found the class white" in capsys.readouterr().err
