"""Our own networks: every option of a block, both stems, every recipe."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from tests.cases import slow_beside
from torch import nn

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import load, save
from bitfactor.models import Hourglass, ResNet
from bitfactor.recipes import RECIPES, recipe_named
from bitfactor.runtime import Session, instruction_sets
from bitfactor.training import build

# The networks of the others are larger ones of those that the tests above export.
QUICK = ("digits",)


def expect_same_outputs(model, path, x):
    with torch.inference_mode():
        expected = model(x).numpy()
    for isa in instruction_sets():
        found = Session(path, isa=isa)(x.numpy())
        np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


OPTIONS = [
    {},
    {"activation": "prelu", "shortcuts": "conv"},
    {"activation": "none", "shortcuts": "conv", "binary_shortcuts": True},
    {"activation": "prelu", "binary_shortcuts": True},
    {"activation": "prelu", "shortcuts": "conv", "gates": True},
    {"activation": "rprelu", "shortcuts": "conv"},
]


@pytest.mark.parametrize(
    ("stem", "stages", "option"),
    slow_beside(
        [
            ("imagenet", "2 1", 0),
            ("cifar", "2 1", 1),
            ("cifar", "2 1", 2),
            ("imagenet", "2 1", 3),
            ("cifar", "2 1", 4),
            ("cifar", "2 1", 5),
        ],
        product(("imagenet", "cifar"), ("2 1", "2 2 2 2", "3 4 6 3"), range(6)),
    ),
)
def test_resnets(stages, stem, option, tmp_path):
    torch.manual_seed(0)
    options = OPTIONS[option]
    blocks = tuple(map(int, stages.split()))
    widths = (8, 16, 24, 32)[: len(blocks)]
    model = ResNet(blocks, widths, num_classes=5, stem=stem, **options)
    binarize_(model, Binarization("holistic", scale="learned"))
    x = torch.randn(4, 3, 64, 64) if stem == "imagenet" else torch.randn(4, 3, 32, 32)
    model.train()(x)
    report = export(model.eval(), tmp_path / "net.safetensors", x[:2])
    assert sum(layer.kind == "binary" for layer in report.layers) >= 2 * sum(blocks)
    expect_same_outputs(model, tmp_path / "net.safetensors", x)


@pytest.mark.parametrize(("stacks", "depth"), slow_beside([(1, 2), (2, 1)], [(1, 2), (2, 1), (2, 2), (4, 2)]))
def test_hourglasses(stacks, depth, tmp_path):
    torch.manual_seed(0)
    model = Hourglass(keypoints=5, stacks=stacks, channels=16, depth=depth)
    binarize_(model, Binarization("holistic", scale="learned"))
    x = torch.randn(4, 3, 64, 32)
    model.train()(x)
    report = export(model.eval(), tmp_path / "net.safetensors", x[:2])
    assert report.max_difference < 1e-4
    assert Session(tmp_path / "net.safetensors")(x.numpy()).shape == (4, 5, 16, 8)


@pytest.mark.parametrize("name", slow_beside(QUICK, RECIPES))
def test_every_recipe(name, tmp_path):
    """Its own network, on images of at most 64 pixels."""
    recipe = recipe_named(name)
    model = build(recipe).eval()
    channels, *size = recipe.input_shape
    x = torch.randn(2, channels, *(min(side, 64) for side in size))
    report = export(model, tmp_path / "net.safetensors", x)
    assert report.macs("binary") > report.macs("real")


@pytest.mark.slow
def test_resnet18_at_its_real_size(tmp_path):
    torch.manual_seed(0)
    model = bitfactor.models.resnet18()
    binarize_(model, Binarization("holistic", scale="learned"))
    x = torch.randn(2, 3, 224, 224)
    model.train()(x)
    model.eval()
    for real, limit in (("float32", 4.3e6), ("float16", 2.9e6), ("int8", 2.2e6)):
        assert export(model, tmp_path / "net.safetensors", x, real=real).file_bytes <= limit


def test_one_flipped_bit_in_a_file_is_caught_by_verify(tmp_path):
    """A file whose checksum is right, and whose weights are not those that were exported."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1))
    binarize_(model, Binarization("none"))
    path = tmp_path / "net.safetensors"
    export(model.eval(), path, torch.randn(2, 3, 9, 9))
    Session(path).verify()
    file = load(path)
    layer = next(node for node in file.graph.nodes if node.op == "binary_conv2d")
    weight = layer.tensors["weight"].copy()
    weight[0, 1, 1, 0] ^= np.uint64(1)
    nodes = (replace(n, tensors={"weight": weight}) if n.name == layer.name else n for n in file.graph.nodes)
    save(path, replace(file, graph=replace(file.graph, nodes=tuple(nodes))))
    with pytest.raises(InputError, match="expected the golden output of the file, exactly"):
        Session(path).verify()
