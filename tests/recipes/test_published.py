"""Recipes of published figures: a few steps on drawn images, and the same answers from the file."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from rich.console import Console

from bitfactor.format import InputSpec
from bitfactor.recipes import RECIPES, recipe_named, recipe_of, recipe_of_settings
from bitfactor.recipes.runs import export_run, load
from bitfactor.runtime import Session, instruction_sets
from bitfactor.training import Run, train

# recipe: side of its small case, steps of an epoch
CASES = {
    "cifar10-resnet20": 16,
    "cifar10-resnet18-recu": 16,
    "cifar10-vgg-small": 32,
    "imagenet-reactnet18": 32,
    "imagenet-reactnet-a": 32,
}
BATCH, CLASSES = 4, 10


@dataclass(frozen=True)
class Drawn:
    """Noise of ten classes: one batch an epoch."""

    side: int
    labels: tuple[str, ...] = tuple("abcdefghij")

    @property
    def input_spec(self):
        return InputSpec((self.side,) * 2, (self.side,) * 2, (0.0,) * 3, (1.0,) * 3)

    def identity(self):
        return {"train": BATCH, "test": BATCH, "fingerprint": "drawn"}

    def steps(self, batch_size):
        return 1

    def train_batches(self, batch_size, seed, epoch, start=0, rank=0, world=1):
        if start == 0:
            yield self.images(epoch)

    def test_batches(self, batch_size, rank=0, world=1):
        yield self.images(99)

    def images(self, seed):
        draws = torch.Generator().manual_seed(seed)
        return torch.randn(BATCH, 3, self.side, self.side, generator=draws), torch.arange(BATCH)


def small(name):
    """Return a recipe with two epochs of one step; of two stages, one in each."""
    recipe, side = recipe_named(name), CASES[name]
    plan = recipe.optimization
    stages = min(plan.real_weight_epochs, 1)
    return replace(
        recipe,
        data=lambda directory: Drawn(side),
        input_shape=(3, side, side),
        optimization=replace(
            plan, epochs=2, batch_size=BATCH, warmup_epochs=0, real_weight_epochs=stages, channels_last=False
        ),
    )


@pytest.mark.parametrize("name", CASES)
def test_a_published_recipe_trains_and_runs_from_a_file(name, tmp_path, monkeypatch):
    recipe = small(name)
    monkeypatch.setitem(RECIPES, name, lambda: recipe)
    row = train(recipe, tmp_path / "run", Console(quiet=True))
    assert row["step"] == 2
    assert np.isfinite(row["loss"])
    run = Run(tmp_path / "run")
    assert recipe_of(run).settings() == recipe.adapted(Drawn(1)).settings()
    report = export_run(run, tmp_path / "net.safetensors")
    assert report.macs("binary") > report.macs("real")
    model, (x, _) = load(tmp_path / "run"), Drawn(CASES[name]).images(7)
    with torch.inference_mode():
        expected = model(x).numpy()
    for isa in instruction_sets():
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_a_run_of_an_earlier_version_is_read():
    """Its settings lack what there was not yet, and lists come back from JSON as tuples."""
    recipe = recipe_named("cifar10-resnet18")
    settings = json.loads(json.dumps(recipe.settings()))
    assert recipe_of_settings(settings, "a run").settings() == recipe.settings()
    for name in ("nesterov", "decayed", "real_weight_rate", "real_weight_decay"):
        del settings["optimization"][name]
    assert recipe_of_settings(settings, "a run").settings() == recipe.settings()
