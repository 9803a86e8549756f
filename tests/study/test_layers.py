"""Each layer's weights and scales are counted once, in the layer that owns them."""

import json
from dataclasses import asdict

import pytest
import torch

import bitfactor
from bitfactor.training.metrics.latents import describe_layers


def described(latent):
    model = bitfactor.models.ResNet((1, 1), (8, 16), 10, in_channels=1, stem="cifar")
    bitfactor.binarize_(model, bitfactor.Binarization(latent=latent, groups="auto"))
    return model, describe_layers(model)


@pytest.mark.parametrize("latent", ["none", "svd", "tucker", "holistic", "product"])
def test_every_weight_and_alpha_is_counted(latent):
    model, layers = described(latent)
    assert layers
    for name, layer in layers.items():
        binary = model.get_submodule(name)
        weight, alpha = layer.weight, layer.alpha
        assert sum(weight.counts) + weight.below + weight.above == binary.latent().numel()
        assert sum(alpha.counts) == binary.alpha().numel()
        assert len(weight.edges) == len(weight.counts) + 1
        assert all(values == sorted(values, reverse=True) for values in layer.spectra.values())
    assert len(json.dumps([asdict(layer) for layer in layers.values()])) < 2000 * len(layers)


def test_what_lies_outside_is_counted_apart():
    model, _ = described("none")
    with torch.no_grad():
        weight = next(iter(model.layer1.modules())).get_submodule("0.conv1").latent.weight
        weight.zero_()
        weight.flatten()[:6] = torch.tensor([-5.0, -4.0, 3.5, 2.0, 2.0, -0.5])
    layer = describe_layers(model)["layer1.0.conv1"]
    assert (layer.weight.below, layer.weight.above) == (2, 1)
    assert layer.outside == pytest.approx(5 / weight.numel(), rel=1e-3)


def test_a_shared_factor_stands_in_the_first_layer_alone():
    _, layers = described("holistic")
    assert layers["layer1.0.conv1"].spectra
    assert not layers["layer1.0.conv2"].spectra
