"""Networks that nobody designed: drawn layer by layer, exported, and run on every instruction set.

`export` itself compares each operation with torch, signs and sums bit for bit, and raises where one differs;
here the runtime must give the reference's bits.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
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


class Of(nn.Module):
    """A function of torch as a module."""

    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def forward(self, x):
        return self.compute(x)


def halves(x):
    return torch.chunk(torch.cat([x, -x], 1), 2, 1)


def lines(x):
    return x.flatten(2).transpose(1, 2)


def assigned(x):
    y = x.clone()
    y[:, :, 0] = 0.5
    return y


# Every family of operators that keeps the shape of a map, in a form whose values stay within bounds.
SAME = {
    "comparison": lambda x: torch.where(x > x.mean(1, keepdim=True), x, -0.5 * x) * (x <= 2),
    "condition": lambda x: torch.where((x > 0) & ~(x > 1), x, 0.5),
    "whole": lambda x: x - 0.5 * x.round() + 0.1 * (x % 2),
    "power": lambda x: x.abs().clamp(0.1, 2) ** 1.5 - x.clamp(-1, 1) ** 5,
    "wave": lambda x: x.sin() + 0.5 * x.cos(),
    "softmax of rows": lambda x: 4 * x.tanh().softmax(2),
    "softmax of channels": lambda x: 4 * x.tanh().softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:], eps=0.1),
    "instance_norm": lambda x: F.instance_norm(x, eps=0.1),
    "group_norm": lambda x: F.group_norm(x, 1, eps=0.1),
    "length": lambda x: F.normalize(x, dim=1, eps=0.1),
    "largest": lambda x: x - x.amax(3, keepdim=True) + x.amin((1, 2), keepdim=True),
    "place": lambda x: x + 0.1 * x.argmax(1, keepdim=True),
    "running sum": lambda x: x.tanh().cumsum(3),
    "division": lambda x: x / (x.abs().mean(1, keepdim=True) + 0.5),
    "moved": lambda x: x.flip(2).roll(1, 3).transpose(2, 3),
    "taken": lambda x: x[:, torch.arange(x.shape[1]).flip(0)][:, :, [*range(1, x.shape[2]), 0]],
    "written": assigned,
    "windows": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1) / 9,
    "pooled in place": lambda x: F.max_pool2d(x, 3, 1, 1) - F.avg_pool2d(x, 3, 1, 1),
    "pooled apart": lambda x: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1, 1, 2),
    "resized": lambda x: F.interpolate(
        F.interpolate(x, scale_factor=1.5, mode="bicubic"), x.shape[2:], mode="bilinear", align_corners=True
    ),
    "adaptive": lambda x: F.interpolate(F.adaptive_avg_pool2d(x, 3), x.shape[2:]),
    "stacked": lambda x: torch.stack(halves(x), 2).mean(2) + torch.stack(halves(x), -1).amax(-1),
    "product": lambda x: (x.tanh() @ x.tanh().mT) @ x.tanh(),
    "einsum": lambda x: torch.einsum("nchw,ndhw->nchw", x.tanh(), x.tanh()),
    "volumes": lambda x: (
        F.avg_pool3d(x[:, None], 3, 1, 1)[:, 0] + F.conv3d(x[:, None], CUBE, padding=1)[:, 0]
    ),
    "rearranged": lambda x: F.pixel_unshuffle(F.interpolate(x, scale_factor=2), 2)[:, ::4],
    "gated": lambda x: F.glu(torch.cat([x, x.flip(1)], 1), 1),
    "mixed": lambda x: (
        F.bilinear(lines(x).tanh(), lines(x).tanh(), PAIR[: x.shape[1], : x.shape[1], : x.shape[1]])
        .transpose(1, 2)
        .reshape(x.shape)
        if x.shape[1] <= len(PAIR)
        else x
    ),
}
CUBE = torch.randn(1, 1, 3, 3, 3, generator=torch.Generator().manual_seed(0))
PAIR = torch.randn(8, 8, 8, generator=torch.Generator().manual_seed(0)) / 8


@st.composite
def blocks(draw, channels, size):
    """Return a module, its output's channels and size, for a map of `channels` x `size` x `size`."""
    kinds = ["depthwise", "pool", "residual", "shuffle", "up", "up", "attention", "pad", *["same"] * 6]
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
        geometry = draw(st.sampled_from([(4, 2, 1), (3, 2, 1, 1), (2, 2), (1, 2, 0, 1)]))
        transposed = nn.ConvTranspose2d(channels, channels, *geometry, bias=draw(st.booleans()))
        bilinear = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=draw(st.booleans()))
        return draw(st.sampled_from([nn.Upsample(scale_factor=2), bilinear, transposed])), channels, size * 2
    if kind == "same":
        return Of(SAME[draw(st.sampled_from(list(SAME)))]), channels, size
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
                nn.Softplus(),
                nn.Hardsigmoid(),
                nn.Mish(),
                nn.Softshrink(),
            ]
            layers.append(draw(st.sampled_from(activations)))
    layers += [nn.Conv2d(channels, 6, 1), nn.BatchNorm2d(6)]
    layers += draw(
        st.sampled_from([[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)], [nn.Conv2d(6, 4, 1)], []])
    )
    model = nn.Sequential(*layers)
    scale = draw(st.sampled_from(["none", "analytic", "learned"]))
    padding = draw(st.sampled_from([-1, 0, 1]))
    weighty = sum(
        isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear) for module in model.modules()
    )
    choices = Binarization("none", scale=scale, real_ends=real_ends and weighty > 2, padding_value=padding)
    try:
        binarize_(model, choices)
    except InputError:  # around which residual connections lead, each layer reads the input
        binarize_(model, replace(choices, real_ends=False))
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
@settings(max_examples=8, **drawn)
def test_a_network_drawn_at_random(network):
    check(network)


@pytest.mark.slow
@given(networks())
@settings(max_examples=200, **drawn)
def test_two_hundred_networks_drawn_at_random(network):
    check(network)
