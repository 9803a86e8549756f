"""A study from Python: the same as the command's, which resumes it."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import bitfactor
from bitfactor.cli import main
from bitfactor.common.errors import InputError
from bitfactor.recipes import RECIPES, expect_registered, recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.study.run import StudyTrial

TINY = {"blocks": [1], "widths": [8], "batch_size": 8, "limit": 16, "epochs": 1}


@pytest.mark.usefixtures("toy_cells")
def test_a_study_from_python_is_the_commands(tmp_path, capsys):
    out = tmp_path / "study"
    result = bitfactor.ablate(
        "digits", out=out, latent=["none"], scale=["learned"], seeds=1, jobs=1, progress=False, **TINY
    )
    (training,) = result.trainings
    assert training["name"] == "none-learned-seed0"
    assert "none" in str(result)
    assert json.loads(result.to_json())["failed"] == []
    flags = (
        "--blocks 1 --widths 8 --batch-size 8 --limit 16 --epochs 1 --latent none --scale learned --seeds 1"
    )
    capsys.readouterr()
    assert main(["ablate", "digits", "--out", str(out), *flags.split(), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["trainings"] == result.to_dict()["trainings"]
    written = bitfactor.report(out, format="csv")
    assert written.output == out / "report.csv"
    assert "none" in written.output.read_text()


def test_a_study_is_of_one_data_set(colours, tmp_path):
    data, other = (colours(tmp_path / name, 8, seed) for seed, name in enumerate(("data", "other")))
    options = {**TINY, "size": 16, "stem": "cifar", "warmup_epochs": 0.0, "latent": ["none"]}
    options |= {"scale": ["learned"], "out": tmp_path / "study", "jobs": 1, "progress": False}
    assert not bitfactor.ablate("folder-resnet18", data=data, seeds=1, **options).failed
    mixed = bitfactor.ablate("folder-resnet18", data=other, seeds=2, **options)
    assert mixed.failed == ("none-learned-seed1",)
    cell = tmp_path / "study" / "cells" / "none-learned-seed1"
    assert "none-learned-seed0, 21 to train on" in (cell / "output.txt").read_text()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"latent": ["tuker"]}, "latent: expected one of none, .*did you mean tucker"),
        ({"epoch": 1}, "expected a known option, found epoch; did you mean epochs"),
        ({"epochs": "1"}, "write 1 without quotes"),
        ({"vary": {"epoch": [1, 2]}}, "did you mean epochs"),
        (
            {"vary": {"epochs": 3}},
            r"vary\['epochs'\]: expected a list of values, found 3; pass vary={'epochs': \[3\]}",
        ),
        ({"vary": {"epochs": []}}, "expected one or more, each once, found none"),
        ({"seeds": 0}, "seeds: expected 1 or more, found 0"),
        ({"jobs": 0}, "jobs: expected 1 or more, found 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path, wrong, said):
    with pytest.raises(InputError, match=said):
        bitfactor.ablate("digits", out=tmp_path / "study", **wrong)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("compared", "alike"),
    [
        ({"latent": ["none", "svd"]}, "none-learned-seed0 and svd-learned-seed0"),
        ({"latent": ["none"], "real": True}, "none-learned-seed0 and real-seed0"),
        (
            {"latent": ["none"], "vary": {"weight_estimator": ["clipped", "rms"]}},
            "none-learned-seed0-weight_estimator=clipped and none-learned-seed0-weight_estimator=rms",
        ),
    ],
)
def test_a_recipe_in_full_precision_is_trained_once(tmp_path, compared, alike):
    recipe = replace(recipe_named("digits"), real=True)
    with pytest.raises(InputError, match=f"so that {alike} differ, found real=True"):
        bitfactor.ablate(recipe, out=tmp_path / "study", scale=["learned"], seeds=1, **compared)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("part", ["model", "data", "task"])
def test_a_recipe_under_the_name_of_another_is_refused(tmp_path, part):
    """A run keeps the name, by which its recipe is found again."""
    own = replace(recipe_named("digits"), **{part: lambda *_: None})
    for train in (bitfactor.train, bitfactor.ablate):
        with pytest.raises(InputError, match=f"the {part} of the recipe that is registered as digits, found"):
            train(own, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_registered_recipes_with_options_are_not_refused(name):
    recipe = with_options(recipe_named(name), {"latent": "svd", "epochs": 700})
    assert expect_registered(recipe) is recipe
    assert expect_registered(replace(recipe, name="of-nobody")).name == "of-nobody"


def test_a_study_is_of_one_version_of_a_file(tmp_path):
    text = "from torch import nn\n\n\ndef net():\n    convs = [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)]\n"
    text += "    return nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))\n"
    (tmp_path / "my.py").write_text(text)
    options = {"batch_size": 8, "limit": 16, "epochs": 1, "latent": ["none"], "scale": ["learned"], "jobs": 1}
    options |= {"model": f"{tmp_path / 'my.py'}:net", "out": tmp_path / "study", "progress": False}
    assert not bitfactor.ablate("digits", seeds=1, **options).failed
    (tmp_path / "my.py").write_text(text + "\n# another\n")
    with pytest.raises(InputError, match="none-learned-seed0, of another version of the network's file"):
        bitfactor.ablate("digits", seeds=2, **options)


def test_options_are_those_of_the_rows_that_they_mean_something_to(toy_cells, tmp_path):
    options = {**TINY, "seeds": 1, "scale": ["learned"], "jobs": 1, "progress": False, "rank": 2}
    result = bitfactor.ablate("digits", out=tmp_path / "a", latent=["none", "svd"], **options)
    assert [training["axes"]["latent"] for training in result.trainings] == ["none", "svd"]
    with pytest.raises(InputError, match="--rank: expected a row that it changes something for, found none"):
        bitfactor.ablate("digits", out=tmp_path / "b", latent=["none"], **options)


def test_the_command_goes_on_with_a_study_from_python(toy_cells, tmp_path):
    options = {**TINY, "seeds": 1, "latent": ["none"], "scale": ["learned"], "jobs": 1, "progress": False}
    bitfactor.ablate("digits", out=tmp_path / "study", move=False, weight_decay=1e-4, **options)
    flags = (
        "--blocks 1 --widths 8 --batch-size 8 --limit 16 --epochs 1 --latent none --scale learned --seeds 1"
    )
    command = ["ablate", "digits", "--out", str(tmp_path / "study"), *flags.split(), "--no-move"]
    assert main([*command, "--weight-decay", "0.0001"]) == 0
    assert main([*command, "--weight-decay", "0.001"]) == 2


@pytest.mark.parametrize(
    ("rows", "at_once", "hours"), [("aaa", 2, 2.0), ("a", 8, 1.0), ("bab", 2, 4.0), ("", 2, 0.0)]
)
def test_the_time_of_a_study_is_that_of_its_fullest_place(rows, at_once, hours):
    """Each training goes to the place that is free first."""
    trials = {"a": SimpleNamespace(hours=1.0), "b": SimpleNamespace(hours=3.0)}
    assert StudyTrial(trials, rows, at_once).hours == hours


def test_a_study_says_the_range_of_its_time():
    """By the fastest and by the slowest of the steps that were timed."""
    trials = {
        "a": SimpleNamespace(
            hours=1.0, hours_range=(0.5, 2.0), device="cpu", steps=1, epochs=1, total=1, seconds=1.0
        ),
        "b": SimpleNamespace(
            hours=3.0, hours_range=(3.0, 3.0), device="cpu", steps=1, epochs=1, total=1, seconds=1.0
        ),
    }
    trial = StudyTrial(trials, "bab", 2)
    assert trial.hours_range == (3.5, 5.0)
    assert trial.to_dict()["hours_range"] == [3.5, 5.0]
    assert "3.5 hours to 5.0 hours by the fastest and the slowest" in str(trial)


def test_a_choice_by_layer_is_a_row(toy_cells, tmp_path, capsys):
    options = {**TINY, "seeds": 1, "jobs": 1, "progress": False, "rank": 2}
    latents = ["layer1.0.conv1=svd *=none", "none"]
    result = bitfactor.ablate("digits", out=tmp_path, latent=latents, scale=["learned"], **options)
    assert not result.failed
    names = [training["name"] for training in result.trainings]
    assert names == ["layer1.0.conv1_svd___none-learned-seed0", "none-learned-seed0"]
    assert "layer1.0.conv1=svd *=none" in str(result)
    flags = "--blocks 1 --widths 8 --batch-size 8 --limit 16 --epochs 1 --rank 2 --scale learned --seeds 1"
    capsys.readouterr()
    command = ["ablate", "digits", "--out", str(tmp_path), *flags.split(), "--latent", *latents, "--json"]
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["trainings"] == result.to_dict()["trainings"]
    assert "layer1.0.conv1=svd *=none" in bitfactor.report(tmp_path, format="csv").output.read_text()
