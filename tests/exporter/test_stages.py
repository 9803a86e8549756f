"""Layers of a stage of training, with one binary factor or none, and layers that are used in unusual ways."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.binarization import summary
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.nn import BinaryConv2d, BinaryConvTranspose1d, BinaryConvTranspose2d
from bitfactor.runtime import Session


def exported(model, tmp_path):
    torch.manual_seed(0)
    return export(model.eval(), tmp_path / "net.safetensors", torch.randn(2, 3, 6, 7), overwrite=True)


def kinds(report):
    return [layer.kind for layer in report.layers]


def half(layer, weights, activations):
    layer.binary_weights, layer.binary_activations = weights, activations
    return layer


@pytest.mark.parametrize(
    "layer",
    [
        BinaryConvTranspose2d(8, 6, 3, stride=2, bias=False),
        BinaryConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, dilation=2),
        BinaryConvTranspose1d(32, 6, 2, stride=3, groups=2),
    ],
)
def test_the_signs_of_a_transposed_convolution_take_a_bit_each(layer, tmp_path):
    model = nn.Sequential(half(layer, True, False))
    x = torch.randn(2, layer.in_channels, *[4] * layer.dimensions)
    report = export(model.eval(), tmp_path / "net.safetensors", x)
    assert set(kinds(report)) == {"binary weights"}
    assert sum(one.file_bytes for one in report.layers) == math.ceil(layer.binary_weight().numel() / 8)
    found = Session(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_allclose(found, model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "activations", "kind", "why"),
    [
        (True, False, "binary weights", "its inputs are still real"),
        (False, True, "binary inputs", "its weights are still real"),
        (False, False, "real", "its inputs and weights are still real"),
    ],
)
def test_what_a_report_says_of_a_layer_of_a_stage(weights, activations, kind, why, tmp_path):
    layers = [BinaryConv2d(8, 8, 3, padding=1, input_scale=True), BinaryConv2d(8, 8, 3)]
    model = nn.Sequential(nn.Conv2d(3, 8, 1), half(layers[0], weights, activations), layers[1])
    found = {one.name: (one.kind, one.why) for one in exported(model, tmp_path).layers}
    assert list(found.values()).count((kind, why)) == 1
    assert any("magnitude" in reason for _, reason in found.values()) == activations


def test_a_model_with_nothing_binary_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected outputs that binary layers take part in"):
        exported(nn.Sequential(half(BinaryConv2d(3, 8, 3), False, False)), tmp_path)


class ByName(nn.Module):
    """Calls layers by the name of their input, and reads their sizes."""

    def __init__(self, layer):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 1), layer

    def forward(self, x):
        return self.b(input=self.a(input=x)) / (self.b.out_channels * self.b.stride[0] * self.b.groups)


@pytest.mark.parametrize("activations", [True, False])
@pytest.mark.parametrize("kind", [BinaryConv2d, BinaryConvTranspose2d])
def test_a_layer_that_is_called_by_name_and_asked_for_its_sizes(kind, activations, tmp_path):
    model = ByName(half(kind(8, 8, 3, stride=2), True, activations))
    assert exported(model, tmp_path).max_difference < 1e-5
    row = next(row for row in summary(model, (1, 3, 6, 6)).rows if row.name == "b")
    assert row.binary_macs + row.real_macs > 0


class Threshold(nn.Module):
    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return x - self.at


def test_warnings_are_of_the_signs_that_are_taken(tmp_path):
    def warned(layer):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Sigmoid(), layer, nn.Conv2d(8, 2, 1))
        return " ".join(exported(model, tmp_path).warnings)

    layer = BinaryConv2d
    one_sign, beyond = "have one sign all over", "beyond -1 ... 1"
    assert one_sign in warned(layer(8, 8, 3))
    assert one_sign not in warned(layer(8, 8, 3, activation_estimator=Threshold))
    assert one_sign not in warned(half(layer(8, 8, 3), True, False))
    standardised = layer(8, 8, 3, latent="none", weight_transform="standardised")
    standardised.latent.weight.data *= 100
    assert beyond not in warned(standardised)
    large = layer(8, 8, 3, latent="none")
    large.latent.weight.data *= 100
    assert beyond in warned(large)
    assert beyond not in warned(half(large, False, True))


@pytest.mark.parametrize(("weights", "kind"), [(True, "binary weights"), (False, "binary inputs")])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_is_exported_as_it_stands(weights, kind, groups, tmp_path):
    layer = half(BinaryConvTranspose2d(6, 4, 3, groups=groups), weights, not weights)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), layer, nn.BatchNorm2d(4))
    report = exported(model, tmp_path)
    assert kinds(report) == ["real", kind]
    assert report.max_difference < 1e-5
