"""Freeze binary layers: decompositions and estimators go, signs stay.

A baked layer calls one custom operator, so that `torch.export` shows each binary convolution as one node
instead of the arithmetic that made its weight.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bitfactor.nn import BinaryConv2d, BinaryLinear


@torch.library.custom_op("bitfactor::binary_conv2d", mutates_args=())
def binary_conv2d(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_value: int,
) -> Tensor:
    """sign(x) (N, C, H, W) convolved with weight in {-1, +1} (O, C / groups, kh, kw): exact sums as float32.

    `padding` is (height, width) on both sides, filled with `pad_value` after the sign.
    """
    signs = torch.where(x > 0, 1.0, -1.0)
    height, width = padding
    padded = F.pad(signs, (width, width, height, height), value=float(pad_value))
    return F.conv2d(padded, weight.to(signs.dtype), None, stride, 0, dilation, groups)


@binary_conv2d.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_value: int,
) -> Tensor:
    return F.conv2d(x, weight.to(x.dtype), None, stride, padding, dilation, groups)


@torch.library.custom_op("bitfactor::binary_linear", mutates_args=())
def binary_linear(x: Tensor, weight: Tensor) -> Tensor:
    """sign(x) (N, F) times weight in {-1, +1} (O, F): exact sums as float32, (N, O)."""
    return F.linear(torch.where(x > 0, 1.0, -1.0), weight.to(x.dtype))


@binary_linear.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


class _BakedLayer(nn.Module):
    """What is left of a binary layer: signs, alpha, bias."""

    weight: Tensor
    alpha: Tensor
    bias: Tensor | None

    def __init__(self, layer: BinaryConv2d | BinaryLinear) -> None:
        super().__init__()
        self.register_buffer("weight", layer.binary_weight().detach().to(torch.int8))
        self.register_buffer("alpha", layer.alpha().detach().clone())
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())


class _BakedConv2d(_BakedLayer):
    def __init__(self, layer: BinaryConv2d) -> None:
        super().__init__(layer)
        self.geometry = (
            list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups, int(layer.padding_value)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = binary_conv2d(x, self.weight, *self.geometry) * self.alpha.view(-1, 1, 1)
        return y if self.bias is None else y + self.bias.view(-1, 1, 1)


class _BakedLinear(_BakedLayer):
    def forward(self, x: Tensor) -> Tensor:
        y = binary_linear(x, self.weight) * self.alpha
        return y if self.bias is None else y + self.bias


def bake(model: nn.Module) -> nn.Module:
    """Return a copy of `model`, in evaluation mode, whose binary layers are signs and scales alone."""
    baked = copy.deepcopy(model).eval()
    for name, layer in model.named_modules():
        if isinstance(layer, BinaryConv2d):
            baked.set_submodule(name, _BakedConv2d(layer))
        elif isinstance(layer, BinaryLinear):
            baked.set_submodule(name, _BakedLinear(layer))
    return baked
