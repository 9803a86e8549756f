"""Layers that are made by hand, in a model of one's own."""

import pytest
import torch
from torch import nn

from bitfactor.common.errors import InputError
from bitfactor.decompositions import LAYERWISE, Tucker
from bitfactor.nn import (
    BinaryConv1d,
    BinaryConv2d,
    BinaryConv3d,
    BinaryConvTranspose1d,
    BinaryConvTranspose2d,
    BinaryLinear,
)
from bitfactor.nn.scale import PER_CHANNEL


@pytest.mark.parametrize("scale", PER_CHANNEL)
@pytest.mark.parametrize("latent", LAYERWISE)
def test_they_are_made_as_torchs_own(latent, scale) -> None:
    layer = BinaryConv2d(4, 6, 3, 2, padding=1, groups=2, bias=False, latent=latent, scale=scale)
    like = nn.Conv2d(4, 6, 3, 2, padding=1, groups=2, bias=False)
    x = torch.randn(2, 4, 9, 9)
    assert layer(x).shape == like(x).shape
    assert layer.bias is None
    layer(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.latent.parameters())


@pytest.mark.parametrize("scale", PER_CHANNEL)
@pytest.mark.parametrize("latent", LAYERWISE)
def test_transposed_ones(latent, scale) -> None:
    layer = BinaryConvTranspose2d(4, 6, 3, 2, 1, groups=2, latent=latent, scale=scale)
    like, x = nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2), torch.randn(2, 4, 5, 5)
    assert layer.weight.shape == like.weight.shape
    assert layer.alpha().shape == (6,)
    for size in (None, (9, 10)):
        assert layer(x, size).shape == like(x, size).shape
    layer(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.latent.parameters())
    with pytest.raises(InputError, match=r"output_size: expected \[9, 9\], or more"):
        layer(x, (9, 11))
    assert layer(x[0], (9, 10)).shape == (6, 9, 10)
    with pytest.raises(InputError, match=r"found \[9\]"):
        layer(x, [9])


@pytest.mark.parametrize("count", [7, 9, 16])
def test_an_input_that_does_not_fit_is_refused(count) -> None:
    for layer, x in [
        (BinaryConv2d(8, 8, 3, padding=1), torch.randn(2, count, 6, 6)),
        (BinaryConv1d(8, 8, 3), torch.randn(2, count, 6)),
        (BinaryLinear(8, 8), torch.randn(8, count)),
        (BinaryConv2d(8, 8, 3), torch.randn(2, 8, 2, 2)),
    ]:
        with pytest.raises(RuntimeError, match=r"channels|shapes cannot|Kernel size"):
            layer(x)


def test_other_dimensions() -> None:
    assert BinaryConvTranspose1d(2, 4, 2, 2)(torch.randn(1, 2, 5)).shape == (1, 4, 10)
    assert BinaryConv1d(2, 4, 3, padding="same")(torch.randn(1, 2, 5)).shape == (1, 4, 5)
    assert BinaryConv3d(2, 4, (1, 2, 3))(torch.randn(1, 2, 5, 5, 5)).shape == (1, 4, 5, 4, 3)
    assert BinaryLinear(8, 4, latent="svd", rank=2)(torch.randn(3, 8)).shape == (3, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"latent": "tuker"}, "did you mean tucker"),
        ({"latent": "holistic"}, "binarize_"),
        ({"scale": "analytical"}, "did you mean analytic"),
        ({"rank": "half"}, "rank"),
        ({"rank": 1.0}, "leave rank out"),
        ({"weight_estimator": "cliped"}, "did you mean clipped"),
        ({"activation_estimator": "clip"}, "did you mean clipped"),
        ({"padding_value": 2}, "-1, 0, 1"),
        ({"padding_value": True}, "-1, 0, 1"),
        ({"bias": "no"}, "True or False"),
        ({"paddin": 1}, "did you mean padding"),
        ({"kernel_size": "3"}, "without quotes"),
    ],
    ids=str,
)
def test_a_wrong_argument_gets_one_sentence(options, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        BinaryConv2d(**{"in_channels": 4, "out_channels": 4, "kernel_size": 3} | options)
    assert "\n" not in str(error.value)


def test_a_latent_and_a_number_are_not_confused() -> None:
    with pytest.raises(InputError, match="a Latent"):
        BinaryConv2d.of(torch.randn(4, 4, 3, 3))
    assert BinaryConv2d.of(Tucker.from_weight(torch.randn(4, 2, 3, 3))).in_channels == 2


def test_the_weight_is_there_to_read() -> None:
    layer = BinaryLinear(3, 2)
    assert layer.weight.shape == (2, 3)
    assert torch.equal(layer.weight.sign() > 0, layer.binary_weight() > 0)
    assert layer.bias.shape == (2,)


def _augment(W) -> None:
    W *= 2


def _item(W) -> None:
    W[0] = 0


def _data(W) -> None:
    W.data = torch.zeros(())


def _frozen(W) -> None:
    W.requires_grad = False


CHANGES = {
    "clamp": lambda W: W.data.clamp_(-1, 1),
    "mul": lambda W: W.detach().mul_(2),
    "view": lambda W: W.data.view(-1).zero_(),
    "item": _item,
    "augment": _augment,
    "data": _data,
    "requires_grad": _frozen,
    "requires_grad_": lambda W: W.requires_grad_(False),
    "init": nn.init.kaiming_normal_,
    "out": lambda W: torch.add(1, 1, out=W),
    "foreach": lambda W: torch._foreach_mul_([W.data], 2),
}


@pytest.mark.parametrize("latent", LAYERWISE)
@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_is_changed_is_no_silent_loss(change, latent) -> None:
    """Nothing, or the layer, changes: of a free weight it is the parameter."""
    layer = BinaryLinear(3, 2, latent=latent)
    if latent == "none":
        assert layer.weight is layer.latent.weight
        return
    with torch.no_grad(), pytest.raises(InputError, match=r"layer\.latent\(\)"):
        CHANGES[change](layer.weight)


@pytest.mark.parametrize("latent", LAYERWISE)
def test_a_penalty_on_a_weight_reaches_its_latent(latent) -> None:
    layer, other = BinaryLinear(3, 2, latent=latent), None
    other = torch.autograd.grad(layer.latent().abs().sum(), list(layer.latent.parameters()))
    penalty = layer.weight.abs().sum()
    penalty.backward()
    assert type(penalty) is torch.Tensor
    for parameter, gradient in zip(layer.latent.parameters(), other, strict=True):
        assert torch.equal(parameter.grad, gradient)
    copy = layer.weight.detach().clone()
    assert type(copy.clamp_(-1, 1)) is torch.Tensor
    assert type(torch.stack([layer.weight, copy])) is torch.Tensor


def test_a_weight_is_not_put_into_a_layer() -> None:
    for put in (
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(2, 3))),
        lambda layer: layer.register_parameter("weight", None),
    ):
        with pytest.raises(InputError, match=r"layer\.latent"):
            put(BinaryLinear(3, 2))


def test_a_new_weight_is_that_of_a_latent_that_is_a_free_weight() -> None:
    layer, weight = BinaryLinear(3, 2, latent="none"), nn.Parameter(torch.ones(2, 3))
    layer.weight = weight
    assert layer.weight is layer.latent.weight is weight
    with pytest.raises(InputError, match=r"layer\.latent"):
        layer.weight = nn.Parameter(torch.ones(3, 3))
