"""Within `once` weights are made once, those of a bank together, with the same values and gradients."""

import pytest
import torch

from bitfactor.binarization import Binarization, binarize_
from bitfactor.decompositions import JOINT, LAYERWISE, once, once_for_all
from bitfactor.decompositions.shared import Bank
from bitfactor.models import ResNet
from bitfactor.nn import BinaryLayer


def made(latent):
    model = ResNet((2, 2), (8, 16), num_classes=3, stem="cifar")
    choices = Binarization(latent=latent, groups="auto" if latent == "holistic" else None)
    binarize_(model, choices, input_shape=(1, 3, 8, 8))
    return model.double()


def gradients(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("latent", [*LAYERWISE, *JOINT])
def test_outputs_and_gradients_are_those_without(latent):
    model, x = made(latent), torch.randn(2, 3, 8, 8).double()
    expected = gradients(model, x)
    with once(model):
        found = gradients(model, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(model, x), expected)


@pytest.mark.parametrize("latent", [*LAYERWISE, *JOINT])
def test_a_pass_without_gradients_takes_none_from_a_later_one(latent):
    """Checkpointing runs a part twice so, the second time within the backward pass."""
    model, x = made(latent), torch.randn(2, 3, 8, 8).double()
    expected = gradients(model, x)
    with once(model):
        with torch.no_grad():
            model(x)
        found = gradients(model, x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rank", [None, 0.5])
def test_a_bank_is_made_in_one_go(monkeypatch, rank):
    model = ResNet((2, 2), (8, 16), num_classes=3, stem="cifar")
    binarize_(model, Binarization(latent="holistic", groups="auto", rank=rank), input_shape=(1, 3, 8, 8))
    banks = {id(module): module for module in model.modules() if isinstance(module, Bank)}
    calls, real = [], Bank._weights
    monkeypatch.setattr(Bank, "_weights", lambda self, place=None: calls.append(place) or real(self, place))
    layers = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    alone = [layer.latent() for layer in layers]
    calls.clear()
    with once(model):
        together = [layer.latent() for layer in layers]
        assert all(layer.latent() is W for layer, W in zip(layers, together, strict=True))
    assert calls == [None] * len(banks)
    torch.testing.assert_close(together, alone)


def test_without_gradients_the_bits_are_those_of_each_by_itself():
    model = made("holistic").float()
    layers = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    with torch.no_grad(), once(model):
        held = [layer.latent() for layer in layers]
    for layer, W in zip(layers, held, strict=True):
        assert torch.equal(layer.latent(), W)
        assert layer.latent() is not W


def test_nothing_is_held_after_an_error():
    model = made("holistic")
    with pytest.raises(RuntimeError), once(model):
        model(torch.randn(2, 5, 8, 8).double())
    assert all(module.held is None for module in model.modules() if hasattr(module, "held"))


@pytest.mark.parametrize("latent", ["none", "tucker", "holistic"])
def test_gradients_of_several_passes_reach_the_parameters_once(monkeypatch, latent):
    model, parts = made(latent), [torch.randn(2, 3, 8, 8).double() for _ in range(3)]
    expected = [sum(terms) for terms in zip(*(gradients(model, x) for x in parts), strict=True)]
    model.zero_grad()
    with once_for_all(model):
        for x in parts:
            model(x).square().sum().backward()
        early = [p.grad for name, p in model.named_parameters() if "latent" in name]
        assert early == [None] * len(early)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)


def test_frozen_latents_stay_so():
    model = made("tucker")
    for module in model.modules():
        if isinstance(module, BinaryLayer):
            module.latent.requires_grad_(False)
    with once_for_all(model):
        model(torch.randn(2, 3, 8, 8).double()).sum().backward()
    assert all(p.grad is None for name, p in model.named_parameters() if "latent" in name)
