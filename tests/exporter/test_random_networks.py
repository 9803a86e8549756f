"""Networks that nobody designed: drawn layer by layer, exported, and run on every instruction set.

`export` itself compares each operation with torch, signs and sums bit for bit, and raises where one differs;
here the runtime must give the reference's bits, and a network without real layers torch's.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from bitfactor.convert import Binarization, binarize_
from bitfactor.exporter import export
from bitfactor.nn import LearnedScale
from bitfactor.runtime import Session, instruction_sets


class Residual(nn.Module):
    """body(x) joined with x, as far as their shapes allow."""

    def __init__(self, body, how):
        super().__init__()
        self.body, self.how = body, how

    def forward(self, x):
        y = self.body(x)
        if self.how == "concat":
            return torch.cat([x, y], 1)
        if self.how == "multiply":
            return y * torch.sigmoid(y.mean((2, 3), keepdim=True))
        if self.how == "halves":
            first, second = torch.chunk(torch.cat([y, y * 2], 1), 2, 1)
            return first - second
        return x + y


class Attended(nn.Module):
    """Each pixel from all others; tanh bounds the scores, whose rounding the softmax would make large."""

    def forward(self, x):
        tokens = torch.tanh(x).flatten(2).transpose(1, 2)
        return F.scaled_dot_product_attention(tokens, tokens, tokens).transpose(1, 2).reshape(x.shape)


class Shuffled(nn.Module):
    """Channels of two groups interleaved, as in ShuffleNet."""

    def forward(self, x):
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


@st.composite
def blocks(draw, channels, size):
    """Return a module, its output's channels and size, for a map of `channels` x `size` x `size`."""
    kinds = ["depthwise", "pool", "residual", "shuffle", "up", "up", "attention", "pad"]
    kind = draw(st.sampled_from([*["conv"] * 4, *kinds]))
    if kind == "depthwise":
        return (
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=draw(st.booleans())),
            channels,
            size,
        )
    if kind == "pool" and size > 3:
        pool = draw(st.sampled_from([nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 2, count_include_pad=False)]))
        return pool, channels, (size + 1) // 2 if isinstance(pool, nn.MaxPool2d) else size // 2
    if kind == "residual":
        how = draw(st.sampled_from(["add", "concat", "multiply", "halves"]))
        body = nn.Sequential(
            nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1), nn.PReLU(channels)
        )
        return Residual(body, how), channels * (2 if how == "concat" else 1), size
    if kind == "shuffle" and channels % 2 == 0:
        return Shuffled(), channels, size
    if kind == "up" and size < 6:
        transposed = nn.ConvTranspose2d(channels, channels, 4, 2, 1, bias=draw(st.booleans()))
        bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=draw(st.booleans()))
        return draw(st.sampled_from([nn.Upsample(scale_factor=2), bilinear, transposed])), channels, size * 2
    if kind == "attention":
        return Attended(), channels, size
    if kind == "pad" and 2 < size < 9:
        padding = draw(
            st.sampled_from([nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.ConstantPad2d(1, 0.5)])
        )
        return padding, channels, size + 2
    groups = 2 if channels % 2 == 0 and draw(st.booleans()) else 1
    outputs = 2 * draw(st.sampled_from([1, 5, 16, 33]))
    kernel, stride, dilation = (
        draw(st.sampled_from([1, 3, (3, 1)])),
        draw(st.sampled_from([1, 2])),
        draw(st.integers(1, 2)),
    )
    padding = dilation if kernel == 3 else (dilation, 0) if kernel == (3, 1) else 0
    conv = nn.Conv2d(channels, outputs, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()))
    return conv, outputs, (size - 1) // stride + 1


@st.composite
def networks(draw):
    """Return a network of random parameters and a batch for it."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    real_ends = draw(st.booleans())
    channels, size, layers = draw(st.sampled_from([3, 8, 65])), draw(st.integers(5, 11)), []
    batch = torch.randn(2, channels, size, size)
    for _ in range(draw(st.integers(1, 5))):
        layers.append(nn.BatchNorm2d(channels))
        block, channels, size = draw(blocks(channels, size))
        layers.append(block)
        if draw(st.booleans()):
            activations = [
                nn.ReLU(),
                nn.PReLU(),
                nn.Hardtanh(-0.5, 2),
                nn.LeakyReLU(0.1),
                nn.ReLU6(),
                nn.Sigmoid(),
                nn.GELU(),
                nn.SiLU(),
                nn.Hardswish(),
                nn.Tanh(),
                nn.ELU(0.5),
            ]
            layers.append(draw(st.sampled_from(activations)))
    layers += [nn.Conv2d(channels, 6, 1), nn.BatchNorm2d(6)]
    layers += draw(
        st.sampled_from([[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)], [nn.Conv2d(6, 4, 1)], []])
    )
    model = nn.Sequential(*layers)
    scale = draw(st.sampled_from(["none", "analytic", "learned"]))
    padding = draw(st.sampled_from([-1, 0, 1]))
    weighty = sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules())
    binarize_(
        model, Binarization("none", scale=scale, real_ends=real_ends and weighty > 2, padding_value=padding)
    )
    randomise(model)
    return model.eval(), batch


def randomise(model):
    """Give scales and BatchNorms values of any sign and size, zero and infinitesimal ones among them."""
    for module in model.modules():
        if isinstance(module, LearnedScale):
            module.alpha.data *= torch.randn_like(module.alpha)
            module.alpha.data[0] = 0
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data = torch.randn_like(module.weight) * 10.0 ** torch.randint(
                -3, 2, module.weight.shape
            )
            module.weight.data[0] = 0
            module.bias.data.normal_()
            module.running_mean.normal_().mul_(3)
            module.running_var.uniform_(1e-6, 4)


def check(network):
    model, batch = network
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "net.safetensors"
        export(model, path, batch)
        expected = Session(path, isa="reference")(batch.numpy())
        for isa in instruction_sets():
            np.testing.assert_array_equal(Session(path, isa=isa)(batch.numpy()), expected)


drawn = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@given(networks())
@settings(max_examples=30, **drawn)
def test_a_network_drawn_at_random(network):
    check(network)


@pytest.mark.slow
@given(networks())
@settings(max_examples=200, **drawn)
def test_two_hundred_networks_drawn_at_random(network):
    check(network)
