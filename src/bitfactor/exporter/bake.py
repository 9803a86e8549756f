"""Freeze binary layers: decompositions and estimators go, signs stay.

A baked layer calls one custom operator, so that `torch.export` shows each binary convolution as one node
instead of the arithmetic that made its weight.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.exporter.obstacles import Obstacle
from bitfactor.nn import (
    BinaryConv,
    BinaryConvTranspose,
    BinaryLayer,
    BinaryLinear,
    LearnedMapScale,
    open_attention_,
    sign,
)
from bitfactor.nn.conv_transpose import CONVOLUTIONS as TRANSPOSED
from bitfactor.nn.conv_transpose import spread_magnitude
from bitfactor.nn.scale import feature_magnitude, over_channels, window_magnitude

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _binary_conv(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_value: int,
) -> Tensor:
    """sign(x) (N, C, ...) convolved with weight in {-1, +1} (O, C / groups, ...): exact sums as float32.

    `padding` is that of torch.nn.functional.pad, filled with `pad_value` after the sign.
    """
    padded = F.pad(sign(x), padding, value=float(pad_value))
    return _CONVOLUTIONS[x.ndim - 2](padded, weight.to(x.dtype), None, stride, 0, dilation, groups)


def _shape_of_binary_conv(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_value: int,
) -> Tensor:
    convolve = _CONVOLUTIONS[x.ndim - 2]
    return convolve(F.pad(x, padding), weight.to(x.dtype), None, stride, 0, dilation, groups)


binary_conv = {
    n: torch.library.custom_op(f"bitfactor::binary_conv{n}d", _binary_conv, mutates_args=())
    for n in _CONVOLUTIONS
}
for operator in binary_conv.values():
    operator.register_fake(_shape_of_binary_conv)


def _binary_conv_transpose(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """sign(x) (N, C, ...) by weight in {-1, +1} (C, O / groups, ...), as torch's: exact sums as float32."""
    geometry = stride, padding, output_padding, groups, dilation
    return TRANSPOSED[x.ndim - 2](sign(x), weight.to(x.dtype), None, *geometry)


def _shape_of_binary_conv_transpose(x: Tensor, weight: Tensor, *geometry: Any) -> Tensor:
    return TRANSPOSED[x.ndim - 2](x, weight.to(x.dtype), None, *geometry)


binary_conv_transpose = {
    n: torch.library.custom_op(
        f"bitfactor::binary_conv_transpose{n}d", _binary_conv_transpose, mutates_args=()
    )
    for n in TRANSPOSED
}
for operator in binary_conv_transpose.values():
    operator.register_fake(_shape_of_binary_conv_transpose)


@torch.library.custom_op("bitfactor::binary_linear", mutates_args=())
def binary_linear(x: Tensor, weight: Tensor) -> Tensor:
    """sign(x) (N, F) times weight in {-1, +1} (O, F): exact sums as float32, (N, O)."""
    return F.linear(sign(x), weight.to(x.dtype))


@binary_linear.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


class _BakedLayer(nn.Module, ABC):
    """What is left of a binary layer: signs; scale and bias, shaped to broadcast over its output; its K."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, layer: BinaryLayer) -> None:
        super().__init__()
        weight = layer.binary_weight()
        scale = (
            layer.scale.gamma()
            if isinstance(layer.scale, LearnedMapScale)
            else over_channels(layer.alpha(), weight)
        )
        self.input_scale = layer.input_scale
        self.register_buffer("weight", weight.detach().to(torch.int8))
        self.register_buffer("scale", scale.detach().clone())
        self.register_buffer(
            "bias", None if layer.bias is None else over_channels(layer.bias, weight).detach().clone()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.product(x) * self.scale
        if self.input_scale:
            y = y * self.magnitude(x)
        return y if self.bias is None else y + self.bias

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """Return sign(x) times the signs of the weight."""

    @abstractmethod
    def magnitude(self, x: Tensor) -> Tensor:
        """Return the layer's K, as `BinaryLayer.magnitude`."""


class _BakedConv(_BakedLayer):
    def __init__(self, layer: BinaryConv) -> None:
        super().__init__(layer)
        self.convolve = binary_conv[layer.dimensions]
        self.stride, self.dilation, self.groups = list(layer.stride), list(layer.dilation), layer.groups
        self.padding, self.pad_value = layer.padding, layer.padding_value
        self.kernel_size = layer.kernel_size  # for models that look at it
        self.sides, self.padding_mode = layer.padding_of_sides(), layer.padding_mode

    def product(self, x: Tensor) -> Tensor:
        sides = self.sides
        if self.padding_mode != "zeros":  # of values or of their signs is the same
            x, sides = F.pad(x, sides, mode=self.padding_mode), [0] * len(sides)
        geometry = self.stride, sides, self.dilation, self.groups, self.pad_value
        y: Tensor = self.convolve(x, self.weight, *geometry)
        return y

    def magnitude(self, x: Tensor) -> Tensor:
        geometry = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        outputs, _, *kernel = self.weight.shape
        return window_magnitude(x, outputs, kernel, groups=self.groups, **geometry)


class _BakedConvTranspose(_BakedLayer):
    def __init__(self, layer: BinaryConvTranspose) -> None:
        super().__init__(layer)
        self.convolve = binary_conv_transpose[layer.dimensions]
        self.geometry, self.kernel_size, self.out_channels = (
            layer.geometry,
            layer.kernel_size,
            layer.out_channels,
        )

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        if output_size is not None:
            self.geometry = self.geometry.giving(output_size, x.shape, self.kernel_size)
        return super().forward(x)

    def product(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolve(x, self.weight, *self.geometry)
        return y

    def magnitude(self, x: Tensor) -> Tensor:
        return spread_magnitude(x, self.out_channels, self.kernel_size, self.geometry)


class _BakedLinear(_BakedLayer):
    def product(self, x: Tensor) -> Tensor:
        y: Tensor = binary_linear(x, self.weight)
        return y

    def magnitude(self, x: Tensor) -> Tensor:
        return feature_magnitude(x, len(self.weight))


def bake(model: nn.Module) -> nn.Module:
    """Return a copy of `model`, in evaluation mode, whose binary layers are signs and scales alone.

    Those of a kind that the file has no operation for are `Refused`.
    """
    if isinstance(model, BinaryLayer):
        return _baked("", model).eval()
    baked = copy.deepcopy(model).eval()
    open_attention_(baked)
    made: dict[nn.Module, nn.Module] = {}
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, BinaryLayer):
            made[layer] = made.get(layer) or _baked(name, layer)
            baked.set_submodule(name, made[layer])
    return baked


class Refused(nn.Module):
    """A binary layer as it was, that the file has no operation for."""

    def __init__(self, name: str, layer: BinaryLayer, found: str, fix: str) -> None:
        super().__init__()
        expected = "a binary linear layer or convolution"
        self.obstacle = Obstacle(name, "", expected, found, fix)
        self.layer = copy.deepcopy(layer).eval()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


def _baked(name: str, layer: BinaryLayer) -> nn.Module:
    if not (layer.binary_activations and layer.binary_weights):
        found = "a layer whose weights or inputs are still real"
        return Refused(name, layer, found, "finish the stage that turns them binary")
    form = next((form for kind, form in _FORMS.items() if isinstance(layer, kind)), None)
    if form is None:
        return Refused(name, layer, type(layer).__name__, "keep this layer real")
    return form(layer)


_FORMS: dict[type[BinaryLayer], Callable[[Any], nn.Module]] = {
    BinaryConv: _BakedConv,
    BinaryConvTranspose: _BakedConvTranspose,
    BinaryLinear: _BakedLinear,
}
