import pytest
import torch

from bitfactor.convert import Binarization, binarize_
from bitfactor.models.hourglass import Hourglass, hourglass
from bitfactor.nn import BinaryLayer


def test_preset_is_one_tensor_of_24_convolutions() -> None:
    model = hourglass()
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(4.98e6, rel=0.002)
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


def test_several_stacks_add_a_mode() -> None:
    model = Hourglass(joints=3, stacks=2, channels=8, depth=2)
    binarize_(model)
    layer = model.get_submodule("stacks.1.hourglass.inner.up.conv2")
    assert layer.latent.core.shape == (2, 2, 3, 2, 8, 8, 3, 3)
    assert layer.latent.place == (1, 1, 2, 1)


@pytest.mark.parametrize("stacks", [1, 2])
def test_heatmaps_of_every_stack_in_training_and_of_the_last_in_eval(stacks) -> None:
    model = Hourglass(joints=5, stacks=stacks, channels=8, depth=2)
    x = torch.randn(2, 3, 32, 32)
    maps = model(x)
    assert [tuple(m.shape) for m in maps] == [(2, 5, 8, 8)] * stacks
    assert model.eval()(x).shape == (2, 5, 8, 8)


def test_binary_twin_exports_and_trains() -> None:
    model = Hourglass(joints=2, channels=8, depth=1)
    binarize_(model, Binarization(latent="holistic", scale="analytic"))
    x = torch.randn(1, 3, 16, 16)
    sum(m.square().sum() for m in model(x)).backward()
    assert all(
        p.grad is not None for m in model.modules() if isinstance(m, BinaryLayer) for p in m.parameters()
    )
    model.eval()
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))
