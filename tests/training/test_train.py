"""Each latent and scale trains and exports, and a recipe is its settings."""

from dataclasses import replace
from itertools import product

import pytest
from rich.console import Console
from tests.cases import slow_beside

from bitfactor.format import InputSpec, Skeleton
from bitfactor.recipes import RECIPES, recipe_named, recipe_of
from bitfactor.training import Interface, Run, build, train

LATENTS = ("none", "svd", "tucker", "holistic")
INTERFACE = Interface(
    InputSpec((8, 8), (8, 8), (0.5,), (0.25,)), ("a", "b"), Skeleton(("l_eye", "r_eye"), ((0, 1),))
)
SCALES = ("none", "analytic", "learned")
# Each latent and each scale once or twice.
TOGETHER = (("none", "none"), ("svd", "analytic"), ("tucker", "learned"), ("holistic", "learned"))


@pytest.mark.parametrize(("latent", "scale"), slow_beside(TOGETHER, product(LATENTS, SCALES)))
def test_every_latent_and_scale_trains_and_exports(latent, scale, tmp_path):
    """A few steps of each lower the loss; the file then says what torch says, or export is an error."""
    from bitfactor.cli import main

    flags = ["--latent", latent, "--scale", scale, "--epochs", "2", "--batch-size", "256"]
    flags += ["--learning-rate", "0.003", "--blocks", "1", "1", "--widths", "8", "16"]
    assert main(["train", "digits", "--out", str(tmp_path / "run"), *flags]) == 0
    first, last = Run(tmp_path / "run").history()
    assert last["loss"] < first["loss"]
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "net.safetensors")]) == 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_its_settings(name, tmp_path):
    recipe = recipe_named(name)
    run = Run(tmp_path)
    run.start(recipe.settings(), INTERFACE, {})
    assert recipe_of(run).settings() == recipe.settings()
    assert run.interface() == INTERFACE


def test_settings_of_a_run_from_before_an_option_existed():
    """It was trained as the option's default has it, not as the recipe may have it now."""
    recipe = recipe_named("lsp-hourglass-small")
    settings = recipe.settings()
    assert settings["model"].pop("activation") == "prelu"
    assert recipe.with_settings(settings).settings()["model"]["activation"] == "relu"
    settings["model"]["colour"] = "red"
    with pytest.raises(TypeError, match="colour"):
        recipe.with_settings(settings)


def test_the_seed_decides_the_first_weights():
    recipe = recipe_named("digits")
    one, two = (build(recipe).state_dict() for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)
    other = build(replace(recipe, optimization=replace(recipe.optimization, seed=1))).state_dict()
    assert any((one[name] != other[name]).any() for name in one)


def test_a_finished_run_says_so(run, capsys):
    recipe = recipe_of(Run(run))
    with Console().capture() as printed:
        train(recipe, run, Console())
    assert "finished" in printed.get() or "finished" in capsys.readouterr().out
