"""A training in so many minutes takes the largest size that leaves enough epochs."""

import json
import math
import re
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

import bitfactor
from bitfactor.recipes import recipe_named
from bitfactor.recipes.own import with_options
from bitfactor.recipes.resnet import sizes_for

TINY = {
    "latent": "none",
    "blocks": (1,),
    "widths": (8,),
    "stem": "cifar",
    "batch_size": 4,
    "warmup_epochs": 0.0,
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    directory, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label in ("left", "right"):
        (directory / label).mkdir()
        for i in range(8):
            cv2.imwrite(str(directory / label / f"{i}.png"), random.integers(0, 256, (140, 170, 3), np.uint8))
    return directory


@pytest.fixture
def seconds_of(monkeypatch):
    """Steps take as long as a function of the recipe says, ten of them an epoch; gives what was asked."""

    def use(seconds):
        asked = []

        def measured(recipe, **_):
            asked.append((recipe.input_shape[-1], recipe.optimization.precision))
            return SimpleNamespace(seconds=seconds(recipe), steps=10, evaluation=1.0)

        monkeypatch.setattr("bitfactor.recipes.fitting.dry_run", measured)
        monkeypatch.setattr("bitfactor.recipes.fitting.has_lite", lambda: False)
        monkeypatch.setattr("bitfactor.api.train.train_in", lambda recipe, *_, **__: taken.append(recipe))
        return asked

    taken = []
    use.taken = taken
    return use


def chosen_in(minutes, photos, tmp_path, seconds_of, capsys, **options):
    bitfactor.train("folder-resnet18", out=tmp_path / "run", data=photos, minutes=minutes, **options)
    return seconds_of.taken[-1], " ".join(capsys.readouterr().err.split())


def by_pixels(recipe):
    return recipe.data.size**2 / 4096 * (0.5 if recipe.optimization.precision == "bfloat16" else 1)


def most_epochs(seconds, epoch):
    """Return how many epochs fit, with ten evaluations of a second at most."""
    return max(n for n in range(1, 1000) if n * epoch + math.ceil(n / math.ceil(n / 10)) <= seconds)


@pytest.mark.parametrize(("minutes", "size"), [(1, 64), (7, 96), (12, 128), (600, 128)])
def test_the_largest_size_that_leaves_enough_epochs(minutes, size, photos, tmp_path, seconds_of, capsys):
    seconds_of(by_pixels)
    recipe, said = chosen_in(minutes, photos, tmp_path, seconds_of, capsys)
    plan, epoch = recipe.optimization, 10 * by_pixels(recipe)
    assert recipe.data.size == size
    assert (plan.precision, plan.channels_last) == ("bfloat16", True)
    assert plan.epochs == min(200, most_epochs(minutes * 60 * 0.93, epoch))
    assert plan.epochs / plan.eval_interval <= 10
    assert f"size {size}, widths " in said
    assert f"{plan.epochs} epochs" in said


def test_what_more_time_would_bring_is_said(photos, tmp_path, seconds_of, capsys):
    seconds_of(by_pixels)
    _, said = chosen_in(7, photos, tmp_path, seconds_of, capsys)
    later = re.search(r"; size 128, widths 32 64 128 256 from (\d+) minutes on", said)
    recipe, _ = chosen_in(int(later[1]) + 1, photos, tmp_path, seconds_of, capsys)
    assert recipe.data.size == 128


def test_what_is_named_stays(photos, tmp_path, seconds_of, capsys):
    asked = seconds_of(by_pixels)
    options = {"size": 72, "precision": "float32", "eval_interval": 3}
    recipe, _ = chosen_in(30, photos, tmp_path, seconds_of, capsys, **options)
    assert recipe.data.size == 72
    assert recipe.optimization.eval_interval == 3
    assert {*asked} == {(72, "float32")}


@pytest.mark.parametrize("first", [None, "own"])
def test_a_run_of_another_network_is_refused(first, photos, tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def Net():\n"
        "    parts = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()\n"
        "    return nn.Sequential(*parts, nn.Linear(4, 2))\n"
    )
    same = {"out": tmp_path / "run", "data": photos, "size": 32, "latent": "none", "batch_size": 4}
    models = {None: TINY, "own": {"model": f"{tmp_path}/own.py:Net", "warmup_epochs": 0.0}}
    begun, other = models.pop(first), models.popitem()[1]
    bitfactor.train("folder-resnet18", epochs=1, **begun | same)
    with pytest.raises(bitfactor.InputError, match=r"a run with .* instead of"):
        bitfactor.train("folder-resnet18", minutes=5, **other | same)


def test_what_a_run_without_a_checkpoint_chose_counts_for_nothing(photos, tmp_path, seconds_of, capsys):
    seconds_of(by_pixels)
    chosen_in(1, photos, tmp_path, seconds_of, capsys)
    run = tmp_path / "run"
    run.mkdir()
    settings = seconds_of.taken[-1].settings()
    (run / "recipe.json").write_text(json.dumps({"settings": settings, "from": None}))
    assert chosen_in(12, photos, tmp_path, seconds_of, capsys)[0].data.size == 128


def test_images_are_not_made_larger_than_they_are(photos):
    sizes = sizes_for(recipe_named("folder-resnet18").data(photos))
    assert [one["size"] for one in sizes] == [64, 64, 96, 128, 128]


def test_another_recipe_keeps_its_network(tmp_path, seconds_of, capsys):
    asked = seconds_of(lambda recipe: 0.1)
    bitfactor.train("digits", out=tmp_path / "run", minutes=1)
    assert seconds_of.taken[-1].model == recipe_named("digits").model
    assert seconds_of.taken[-1].optimization.epochs == 45
    assert len(asked) == 1


def test_the_first_stage_of_a_recipe_keeps_its_fraction(photos, tmp_path, seconds_of):
    seconds_of(lambda recipe: 0.1)
    same = {"data": photos, "out": tmp_path / "run", "minutes": 1, "size": 32, "batch_size": 4}
    bitfactor.train("imagenet-reactnet18", **same)
    plan = seconds_of.taken[-1].optimization
    assert (plan.epochs, plan.real_weight_epochs) == (45, 22)
    bitfactor.train("imagenet-reactnet18", **same, real_weight_epochs=5)
    assert seconds_of.taken[-1].optimization.real_weight_epochs == 5


def test_too_little_time_says_how_much_is_needed(photos, tmp_path, seconds_of, capsys):
    seconds_of(by_pixels)
    with pytest.raises(
        bitfactor.InputError, match=r"minutes: expected 0\.\d+ or more, for 3 epochs of size 64"
    ):
        chosen_in(0.1, photos, tmp_path, seconds_of, capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "minutes: expected a value above 0"),
        ({"minutes": 5, "epochs": 3}, "minutes: expected minutes or epochs"),
        ({"minutes": 5, "steps": 3}, "minutes: expected minutes or steps"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message, photos, tmp_path):
    with pytest.raises(bitfactor.InputError, match=message):
        bitfactor.train("folder-resnet18", out=tmp_path / "run", data=photos, **options)
    assert not (tmp_path / "run").exists()


def test_the_time_that_is_said_to_be_enough_is(photos, tmp_path, seconds_of, capsys):
    seconds_of(lambda recipe: 1.0)
    with pytest.raises(bitfactor.InputError, match="minutes: expected") as refused:
        chosen_in(0.1, photos, tmp_path, seconds_of, capsys)
    enough = float(re.search(r"expected ([\d.]+) or more", str(refused.value))[1])
    assert chosen_in(enough, photos, tmp_path, seconds_of, capsys)[0].optimization.epochs == 3


def test_widths_that_go_with_the_blocks_are_not_changed(photos, tmp_path, seconds_of, capsys):
    seconds_of(by_pixels)
    recipe, _ = chosen_in(30, photos, tmp_path, seconds_of, capsys, blocks=(3, 4, 6, 3))
    assert len(recipe.model.widths) == 4


def test_stages_and_warm_up_fit_the_epochs(tmp_path, seconds_of, capsys, photos):
    seconds_of(lambda recipe: 1.0)
    options = {"real_weight_epochs": 1, "real_weight_rate": 0.1, "warmup_epochs": 3.0, "epochs": 100}
    recipe = with_options(recipe_named("digits"), options)
    bitfactor.train(recipe, out=tmp_path / "run", minutes=1)
    plan = seconds_of.taken[-1].optimization
    assert plan.epochs < 6
    assert plan.real_weight_epochs == 1
    assert plan.warmup_epochs == 0.5


def test_several_processes_go_on_with_what_one_has_chosen(photos, tmp_path, monkeypatch):
    options = {"out": tmp_path / "run", "data": photos, "size": 16, "batch_size": 4, "progress": False}
    bitfactor.train("folder-resnet18", epochs=1, **options)
    monkeypatch.setattr("bitfactor.recipes.fitting.is_torchelastic_launched", lambda: True)
    assert bitfactor.train("folder-resnet18", minutes=5, **options).history[-1]["epoch"] == 1


def test_of_several_processes_none_measures(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("bitfactor.recipes.fitting.is_torchelastic_launched", lambda: True)
    with pytest.raises(bitfactor.InputError, match="expected one process"):
        bitfactor.train("folder-resnet18", out=tmp_path / "run", data=photos)


def test_a_folder_takes_its_default_and_resumes_with_what_it_chose(photos, tmp_path, monkeypatch, capsys):
    """Steps are measured here, and what is chosen differs from machine to machine."""
    monkeypatch.setattr("bitfactor.recipes.fitting._MEASURED", 0.01)
    monkeypatch.setattr("bitfactor.recipes.fitting._MOST", 3)
    out = tmp_path / "run"

    def train():
        return bitfactor.train("folder-resnet18", out=out, data=photos, size=16, progress=False, **TINY)

    first = train()
    recipe = first.recipe
    assert recipe.optimization.epochs == 3
    assert first.history[-1]["epoch"] == 3
    monkeypatch.setattr("bitfactor.recipes.fitting._MOST", 4)
    assert train().history == first.history


@pytest.mark.parametrize(
    ("minutes", "options", "teacher"),
    [(6, {}, "efficientnet-lite0"), (0.7, {}, None), (6, {"teacher": None}, None)],
)
def test_a_teacher_that_is_installed_is_taken_where_there_is_time(
    minutes, options, teacher, photos, tmp_path, seconds_of, capsys, monkeypatch
):
    seconds_of(lambda recipe: by_pixels(recipe) * (2 if recipe.optimization.teacher else 1))
    monkeypatch.setattr("bitfactor.recipes.fitting.has_lite", lambda: True)
    monkeypatch.setattr("bitfactor.recipes.fitting.teacher_of", lambda recipe: None)
    monkeypatch.setattr("bitfactor.api.train.teacher_of", lambda recipe: None)
    recipe, said = chosen_in(minutes, photos, tmp_path, seconds_of, capsys, **options)
    assert recipe.optimization.teacher == teacher
    assert (f"teacher {teacher}" in said) == (teacher is not None)
    assert recipe.optimization.epochs >= 5


def test_a_teacher_that_is_a_run_says_the_size(photos, tmp_path, seconds_of, capsys):
    bitfactor.train("folder-resnet18", out=tmp_path / "teacher", data=photos, size=48, epochs=1, **TINY)
    seconds_of(by_pixels)
    recipe, _ = chosen_in(6, photos, tmp_path, seconds_of, capsys, teacher=str(tmp_path / "teacher"))
    assert recipe.data.size == 48


def test_another_recipe_has_no_teacher(tmp_path, seconds_of, capsys, monkeypatch):
    seconds_of(lambda recipe: 0.1)
    monkeypatch.setattr("bitfactor.recipes.fitting.has_lite", lambda: True)
    bitfactor.train("digits", out=tmp_path / "run", minutes=1)
    assert seconds_of.taken[-1].optimization.teacher is None
