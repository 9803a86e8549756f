"""The hourglass network is the paper's, and its file gives the last stack's maps."""

import numpy as np
import pytest
import torch
from tests.cases import slow_beside

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.models import hourglass
from bitfactor.nn import BinaryLayer
from bitfactor.runtime import Session


def parameters(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_preset_is_one_tensor_of_24_convolutions():
    model = hourglass()
    assert parameters(model) == 4_985_168
    plan = binarize_(model)
    members = [layer for layer in plan.binary if layer.bank == "hourglass"]
    assert len(members) == 24
    banks = {id(model.get_submodule(layer.name).latent.bank) for layer in members}
    assert len(banks) == 1
    latent = model.get_submodule(members[0].name).latent
    assert latent.core.shape == (4, 3, 2, 128, 128, 3, 3)
    assert sorted(layer.place for layer in members) == [
        (d, p, c) for d in range(4) for p in range(3) for c in (0, 1)
    ]
    assert len([layer for layer in plan.binary if layer.latent == "tucker"]) == 10
    assert {layer.shape[2:] for layer in plan.layers if not layer.binary} == {(7, 7), (1, 1)}


def test_several_stacks_add_a_mode():
    model = hourglass(keypoints=3, stacks=2, channels=8, depth=2)
    binarize_(model)
    layer = model.get_submodule("stacks.1.hourglass.inner.up.conv2")
    assert layer.latent.core.shape == (2, 2, 3, 2, 8, 8, 3, 3)
    assert layer.latent.place == (1, 1, 2, 1)


@pytest.mark.parametrize("block", ["basic", "hierarchical"])
def test_several_blocks_follow_each_other_on_the_maps_that_are_smaller(block):
    """Their first ones are in the tensor, which is that of one block each."""
    one, three = (hourglass(keypoints=3, channels=8, depth=2, block=block, blocks=n) for n in (1, 3))
    top = "stacks.0.hourglass"
    paths = {
        f"{top}.{path}" for path in ("down", "up", "inner.skip", "inner.down", "inner.up", "inner.inner")
    }
    names = [name for name, _ in three.named_modules()]
    assert {name.removesuffix(".2.conv1") for name in names if name.endswith(".2.conv1")} == paths
    plans = [binarize_(model) for model in (one, three)]
    places = [sorted((layer.bank, layer.place) for layer in plan.binary if layer.bank) for plan in plans]
    assert places[0] == places[1]
    members = {layer.name for layer in plans[1].binary if layer.bank}
    assert f"{top}.up.0.conv1" in members
    assert f"{top}.up.1.conv1" not in members


def test_the_hierarchical_network_of_256_channels_has_the_6_2_million_of_its_authors():
    model = hourglass(channels=256, block="hierarchical")
    assert parameters(model) == 6_236_624
    assert sum(p.numel() for p in model.parameters() if p.dim() == 4) == 6_220_992


@pytest.mark.parametrize(("stacks", "grid"), [(1, (2, 3)), (2, (2, 2, 3))])
def test_each_convolution_of_hierarchical_blocks_has_a_tensor(stacks, grid):
    model = hourglass(keypoints=3, channels=16, stacks=stacks, depth=2, block="hierarchical")
    plan = binarize_(model)
    shapes = {"conv1": (8, 16, 3, 3), "conv2": (4, 8, 3, 3), "conv3": (4, 4, 3, 3)}
    for name, shape in shapes.items():
        members = [layer for layer in plan.binary if layer.bank == f"hourglass.{name}"]
        assert {layer.name.rsplit(".", 1)[1] for layer in members} == {name}
        assert len(members) == np.prod(grid)
        assert model.get_submodule(members[0].name).latent.core.shape == (*grid, *shape)


@pytest.mark.parametrize("block", ["basic", "hierarchical"])
@pytest.mark.parametrize("stacks", [1, 2])
def test_heatmaps_of_every_stack_in_training_and_of_the_last_in_eval(stacks, block):
    model = hourglass(keypoints=5, stacks=stacks, channels=8, depth=2, block=block)
    x = torch.randn(2, 3, 32, 48)
    maps = model(x)
    assert [tuple(m.shape) for m in maps] == [(2, 5, 8, 12)] * stacks
    assert model.eval()(x).shape == (2, 5, 8, 12)
    assert torch.equal(model.train()(x)[-1], maps[-1])


@pytest.mark.parametrize("stacks", [1, 2])
def test_every_parameter_learns(stacks):
    """Also those that only a later hourglass, or only its supervision, reaches."""
    model = hourglass(keypoints=2, channels=8, depth=1, stacks=stacks)
    binarize_(model, Binarization(latent="holistic", scale="learned"))
    sum(m.square().sum() for m in model(torch.randn(2, 3, 16, 16))).backward()
    assert any(isinstance(module, BinaryLayer) for module in model.modules())
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    "options",
    slow_beside(
        [{}, {"stacks": 2, "block": "hierarchical"}, {"stem": "quartering", "blocks": 2}],
        [
            {},
            {"stacks": 2},
            {"stacks": 4},
            {"stacks": 2, "block": "hierarchical"},
            {"stem": "quartering"},
            {"blocks": 2},
            {"stem": "quartering", "blocks": 2},
        ],
    ),
    ids=str,
)
def test_the_file_gives_the_maps_of_the_last_stack(options, tmp_path):
    torch.manual_seed(0)
    model = hourglass(keypoints=3, channels=8, depth=1, **options)
    binarize_(model)
    x = torch.randn(4, 3, 16, 32)
    model(x)
    bitfactor.export(model.eval(), tmp_path / "net.safetensors", x)
    maps = Session(tmp_path / "net.safetensors")(x.numpy())
    assert maps.shape == (4, 3, 4, 8)
    with torch.inference_mode():
        np.testing.assert_allclose(maps, model(x).numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"channels": 6}, "channels"),
        ({"depth": 0}, "depth"),
        ({"stacks": 0}, "stacks"),
        ({"blocks": 0}, "blocks"),
        ({"block": "basis"}, "basic"),
        ({"stem": "halfing"}, "halving"),
        ({"block": "hierarchical", "shortcuts": "conv"}, "around each hierarchical block"),
    ],
)
def test_unusable_options(options, named):
    with pytest.raises(InputError, match=named):
        hourglass(**options)


def test_an_image_of_another_size():
    with pytest.raises(InputError, match=r"multiples of 16, .* found 24 x 32"):
        hourglass(keypoints=1, channels=8, depth=2)(torch.zeros(1, 3, 24, 32))


def test_a_cell_behind_the_quartering_stem_lies_at_the_middle_of_its_pixels():
    """So a filter that is its own mirror image gives the mirrored map of a mirrored image."""
    stem = hourglass(keypoints=1, channels=8, depth=1, stem="quartering").stem
    convolutions = [module for module in stem if isinstance(module, torch.nn.Conv2d)]
    for convolution in convolutions:
        torch.nn.init.ones_(convolution.weight)

    def cells(x):
        for convolution in convolutions:
            x = convolution(x)
        return x

    x = torch.randint(256, (1, 3, 16, 24)).float()
    assert cells(x).shape == (1, 8, 4, 6)
    for side in (2, 3):
        assert torch.equal(cells(x.flip(side)), cells(x).flip(side))


@pytest.mark.parametrize(
    "options", [{"shortcuts": "conv"}, {"block": "hierarchical"}], ids=["basic", "hierarchical"]
)
def test_activation_and_shortcuts(options):
    plain = hourglass(keypoints=1, channels=8, depth=1)
    other = hourglass(keypoints=1, channels=8, depth=1, activation="prelu", **options)
    kinds = [{type(module).__name__ for module in model.modules()} for model in (plain, other)]
    assert "PReLU" in kinds[1] - kinds[0]
    torch.manual_seed(0)
    assert other.eval()(torch.randn(1, 3, 16, 16)).isfinite().all()


def test_a_shortcut_of_each_convolution_changes_what_a_block_gives():
    torch.manual_seed(0)
    x = torch.randn(1, 3, 16, 16)
    one, each = (hourglass(keypoints=1, channels=8, depth=1, shortcuts=name) for name in ("block", "conv"))
    each.load_state_dict(one.state_dict())
    assert not torch.allclose(one.eval()(x), each.eval()(x))
