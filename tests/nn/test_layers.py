"""Geometry, padding, bias and scales of the binary layers, against their float twins on signs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Tucker
from bitfactor.nn import BinaryConv2d, LearnedMapScale, sign
from bitfactor.nn.scale import MAPS

FLOAT_LAYERS = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, 1), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, padding=1, bias=False), (2, 4, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 4, (1, 3, 3), padding=(0, 1, 1)), (2, 2, 3, 5, 5)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2), (2, 4, 7, 7)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4), (2, 4, 7, 7)),
    "pointwise": (lambda: nn.Conv2d(4, 6, 1), (2, 4, 5, 5)),
    "same": (lambda: nn.Conv2d(4, 6, (2, 3), padding="same"), (2, 4, 5, 5)),
    "valid": (lambda: nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 5, 5)),
    "reflect": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 5, 5)),
    "unbatched": (lambda: nn.Conv2d(4, 6, 3, padding=1), (4, 5, 5)),
    "linear": (lambda: nn.Linear(6, 5), (2, 3, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), (2, 4, 5, 5)),
    "transposed, grouped": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, groups=2, dilation=2), (2, 4, 5, 5)),
    "transposed line": (lambda: nn.ConvTranspose1d(4, 6, 4, 2, 1, bias=False), (2, 4, 5)),
    "transposed, unbatched": (lambda: nn.ConvTranspose2d(4, 6, 2, 2), (4, 5, 5)),
}


def binary_twin(layer: nn.Module, **choices: object) -> nn.Module:
    model = nn.Sequential(layer)
    binarize_(model, Binarization(**{"latent": "tucker", "real_ends": False, "depthwise": True, **choices}))
    return model[0]


@pytest.mark.parametrize("name", FLOAT_LAYERS)
def test_a_binary_layer_is_its_float_twin_on_signs(name) -> None:
    make, shape = FLOAT_LAYERS[name]
    layer = make()
    layer.weight.data = layer.weight.data.double()
    layer.double()
    binary = binary_twin(copy.deepcopy(layer))
    x = torch.randn(shape, dtype=torch.float64)
    W = layer.weight.detach()
    assert binary.latent().shape == W.shape
    filters = binary.filters(W, binary.groups)
    torch.testing.assert_close(binary.alpha(), filters.abs().flatten(1).mean(1))
    assert torch.equal(binary.binary_weight(), sign(W))
    with torch.no_grad():
        scaled = sign(filters) * filters.abs().flatten(1).mean(1).view(-1, *(1,) * (W.dim() - 1))
        layer.weight.copy_(binary.of_filters(scaled, binary.groups))
    torch.testing.assert_close(binary(x), layer(sign(x)))


@pytest.mark.parametrize("value", [-1, 0, 1])
def test_padding_comes_after_the_sign(value) -> None:
    layer = nn.Conv2d(3, 4, 3, padding=(1, 2), bias=False)
    binary = binary_twin(layer, padding_value=value, scale="none")
    x = torch.randn(1, 3, 5, 5)
    padded = F.pad(sign(x), (2, 2, 1, 1), value=value)
    assert torch.equal(binary(x), F.conv2d(padded, binary.binary_weight()))


def test_padding_of_sides_is_last_dimension_first() -> None:
    W, x = torch.randn(2, 2, 2, 3), torch.zeros(1, 2, 5, 6)
    given = {"each": (1, 2), "pairs": ((0, 1), (2, 3)), "same": "same"}
    layers = {
        name: BinaryConv2d.of(Tucker.from_weight(W), padding=padding) for name, padding in given.items()
    }
    assert {name: layer.padding_of_sides(x) for name, layer in layers.items()} == {
        "each": [2, 2, 1, 1],
        "pairs": [2, 3, 0, 1],
        "same": [1, 1, 0, 1],
    }
    strided = BinaryConv2d.of(Tucker.from_weight(W), padding="same", stride=2)
    assert strided.padding_of_sides(x) == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("name", "count"),
    [("learned_map", 6 * 5 * 4), ("learned_channel_x_map", 6 + 20), ("learned_channel_x_axes", 15)],
)
def test_scales_per_position(name, count) -> None:
    alpha = torch.rand(6)
    scale = LearnedMapScale(MAPS[name](alpha, (5, 4)))
    assert sum(p.numel() for p in scale.parameters()) == count
    W, y = torch.randn(6, 3, 3, 3), torch.randn(2, 6, 5, 4)
    torch.testing.assert_close(scale(y, W), y * alpha.view(6, 1, 1))
    torch.testing.assert_close(scale.alpha_of(W), alpha)
    with pytest.raises(InputError, match="scale per position"):
        scale(torch.randn(2, 6, 4, 5), W)


def test_real_weights_of_a_stage_have_mean_magnitude_one() -> None:
    layer = nn.Conv2d(3, 4, 3, bias=False)
    x = torch.randn(2, 3, 6, 6)
    expected = layer(sign(x))
    binary = binary_twin(layer, weights=False, scale="learned")
    torch.testing.assert_close(binary(x), expected, rtol=1e-4, atol=1e-5)


def test_real_activations_of_a_stage() -> None:
    layer = nn.Conv2d(3, 4, 3, bias=False)
    binary = binary_twin(layer, activations=False, scale="none")
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(binary(x), F.conv2d(x, binary.binary_weight()))


@pytest.mark.parametrize("name", FLOAT_LAYERS)
def test_the_magnitude_of_the_input_is_the_mean_over_each_window(name) -> None:
    """As a float layer whose weights are all 1 / n sees the magnitudes, and with zeros around them."""
    make, shape = FLOAT_LAYERS[name]
    plain, scaled = (binary_twin(make().double(), latent="none", input_scale=k) for k in (False, True))
    scaled.load_state_dict(plain.state_dict())
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    window = make().double()
    window.weight.data.fill_(1 / plain.filters(plain.weight, plain.groups)[0].numel())
    window.bias = None
    if name == "reflect":
        window.padding_mode = "zeros"
    bias = 0 if plain.bias is None else plain.bias.view(-1, *(1,) * (plain.weight.dim() - 2))
    expected = (plain(x) - bias) * window(x.abs()) + bias
    torch.testing.assert_close(scaled(x), expected)
    scaled(x).sum().backward()
    assert x.grad.abs().sum() > 0


def test_real_inputs_have_no_magnitude_to_multiply_with() -> None:
    layer = BinaryConv2d(4, 6, 3, latent="none", input_scale=True)
    layer.binary_activations = False
    other = BinaryConv2d(4, 6, 3, latent="none")
    other.binary_activations = False
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 4, 5, 5)
    torch.testing.assert_close(layer(x), other(x))
