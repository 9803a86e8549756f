"""Layers of others' classes: those that pad before they convolve turn binary, others have a reason."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.cases import slow_beside
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.nn import BinaryConv2d, BinaryLayer


class Named(nn.Conv2d):
    pass


class Plain(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Same(nn.Conv2d):
    """As TensorFlow pads: the output has ceil(side / stride), and what is odd comes behind."""

    def forward(self, x):
        sides = []
        for n, k, s, d in zip(x.shape[2:], self.kernel_size, self.stride, self.dilation, strict=True):
            total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
            sides = [total // 2, total - total // 2, *sides]
        return F.conv2d(F.pad(x, sides), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Fixed(nn.Conv2d):
    """As EfficientNet-Lite has it: a padding that was computed for one size of image."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.static_padding = nn.ZeroPad2d((0, 1, 0, 1))

    def forward(self, x):
        return F.conv2d(self.static_padding(x), self.weight, self.bias, self.stride)


class Standardised(nn.Conv2d):
    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, w / w.std((1, 2, 3), keepdim=True), self.bias, self.stride, self.padding)


class More(nn.Conv2d):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.added = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return super().forward(x) + self.added * x.mean()


class Normalised(nn.Linear):
    def forward(self, x):
        return F.linear(x, F.normalize(self.weight), self.bias)


class NamedLinear(nn.Linear):
    pass


def around(layer):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), layer, nn.Conv2d(8, 4, 1))


TURNED = {
    "named": lambda: Named(8, 8, 3, padding=1),
    "plain": lambda: Plain(8, 8, 3, 2, padding=1),
    "same": lambda: Same(8, 8, 3, 2),
    "same, dilated": lambda: Same(8, 8, (3, 5), 1, dilation=2),
    "fixed": lambda: Fixed(8, 8, 3, 2),
    "fixed, even": lambda: Fixed(8, 8, 2),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("side", "input_scale"),
    slow_beside([(9, False), (10, True)], [(9, False), (10, True), (9, True), (10, False)]),
)
@pytest.mark.parametrize("name", TURNED)
def test_a_subclass_that_pads_and_convolves_turns_binary(name, side, input_scale, tmp_path):
    torch.manual_seed(0)
    layer = TURNED[name]()
    model = around(copy.deepcopy(layer)).eval()
    plan = bitfactor.binarize_(model, latent="none", scale="analytic", input_scale=input_scale)
    assert [one.name for one in plan.binary] == ["2"]
    x = torch.randn(2, 3, side, side)
    inner = torch.randn(2, 8, side, side)
    signs = nn.Parameter(torch.where(layer.weight > 0, 1.0, -1.0))
    if not input_scale:
        alpha = layer.weight.abs().mean((1, 2, 3)).view(-1, 1, 1)
        layer.weight, bias = signs, layer.bias.detach().view(-1, 1, 1)
        expected = (layer(torch.where(inner > 0, 1.0, -1.0)) - bias) * alpha + bias
        torch.testing.assert_close(model[2](inner), expected)
    assert isinstance(model[2], BinaryConv2d)
    bitfactor.export(model, tmp_path / "net.safetensors", x)
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(
        bitfactor.Session(tmp_path / "net.safetensors")(x.numpy()), expected, atol=1e-4
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: Standardised(8, 8, 3, padding=1),
            "its class Standardised computes something else than Conv2d",
        ),
        (lambda: More(8, 8, 3, padding=1), "its class More computes something else than Conv2d"),
        (
            lambda: parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1)),
            "its weight is computed from other parameters",
        ),
        (
            lambda: parametrizations.spectral_norm(Named(8, 8, 3, padding=1)),
            "its weight is computed from other parameters",
        ),
    ],
    ids=["standardised", "more parameters", "parametrised", "parametrised subclass"],
)
def test_another_subclass_stays_real_with_its_reason(make, reason):
    model = nn.Sequential(*around(make()), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))
    plan = bitfactor.binarize_(model, latent="none")
    assert {one.name: one.reason for one in plan.layers}["2"] == reason
    assert not isinstance(model[2], BinaryLayer)


def test_where_all_stays_real_the_error_has_the_reasons():
    layers = [Standardised(8, 8, 3) for _ in range(5)]
    with pytest.raises(InputError, match=r"1, 2, 3, \.\.\. \(its class Stand.*\); 6 \(last layer"):
        bitfactor.binarize_(nn.Sequential(nn.Conv2d(3, 8, 1), *layers, nn.Conv2d(8, 2, 1)), latent="none")


def test_subclasses_of_linear_layers():
    layers = [nn.Linear(8, 8), NamedLinear(8, 8), Normalised(8, 8), nn.Linear(8, 2)]
    plan = bitfactor.binarize_(nn.Sequential(*layers), latent="none")
    assert {one.name: one.reason for one in plan.layers if not one.binary}["2"] == (
        "its class Normalised computes something else than Linear"
    )
    assert [one.name for one in plan.binary] == ["1"]


def test_the_plan_names_a_latent_whose_factors_are_not_absurdly_large():
    """Tucker's square factor of 25,088 inputs has six times the numbers of VGG's layer."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(3000, 100), nn.Linear(4, 4))
    (warning,) = bitfactor.binarize_(model, latent="tucker", dry_run=True).warnings
    assert "latent='svd' takes 1,240,400" in warning
