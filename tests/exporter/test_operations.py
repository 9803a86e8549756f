"""Operators of torch, each behind a binary convolution: exported, and run on every instruction set.

`export` itself compares each operation of the graph with torch; here the whole is compared, and the compiled
kernels with the reference, bit for bit.
"""

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.exporter import export
from bitfactor.runtime import Session, instruction_sets

CHANNELS, HEIGHT, WIDTH = 8, 6, 5


@cache  # so that a trace finds what the first run has drawn
def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def written(x):
    x[:, :2] = 0.5
    x[:, 3] = x[:, 0] + x[:, 4]
    x[:, :, [0, 2]] = 1.0
    return x.mul_(2)


def sequence(x):
    """(N, C, H, W) -> (N, H W, C)."""
    return x.flatten(2).transpose(1, 2)


def volume(x):
    return x.view(len(x), 2, 4, HEIGHT, WIDTH)


def heads(x):
    return sequence(x).view(len(x), -1, 2, 4).transpose(1, 2)


def windows(x):
    """Shifted windows of attention, which stand in the batch for a while."""
    x = F.pad(x, (0, 1)).roll((1, 2), (2, 3)).permute(0, 2, 3, 1)
    apart = x.view(len(x), 3, 2, 3, 2, CHANNELS).transpose(2, 3).reshape(-1, 4, CHANNELS)
    attended = F.scaled_dot_product_attention(apart, apart, apart)
    together = attended.view(len(x), 3, 3, 2, 2, CHANNELS).transpose(2, 3)
    return together.reshape(len(x), 6, 6, CHANNELS)


def standardised(x):
    x = sequence(x)
    return (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True).add(1e-3).sqrt()


PER_CHANNEL, OTHERS, MATRIX = drawn(CHANNELS), drawn(6), drawn(CHANNELS, CHANNELS)
MASK = drawn(HEIGHT, WIDTH) > 0
TOKEN = drawn(1, 1, CHANNELS)

OPERATIONS = {
    "functions of a number": lambda x: torch.cat(
        [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.hardswish(x), F.hardsigmoid(x), F.mish(x)], 1
    ),
    "more of them": lambda x: torch.cat(
        [F.elu(x, 0.7), F.selu(x), F.celu(x, 0.6), F.softplus(x), F.logsigmoid(x), F.leaky_relu(x, 0.2)], 1
    ),
    "and roots": lambda x: torch.cat(
        [x.tanh(), (x / 9).exp(), (x.abs() + 0.1).log(), x.abs().sqrt(), (x.abs() + 1).rsqrt(), x.square()], 1
    ),
    "in place": lambda x: F.elu(F.silu(x.clone(), inplace=True), inplace=True),
    "arithmetic": lambda x: (
        torch.maximum(x / (x.abs() + 1), x**3 - x).clamp(min=-3) - torch.minimum(x, 2 * x)
    ),
    "prelu": lambda x: F.prelu(x, PER_CHANNEL),
    "prelu of sequences": lambda x: F.prelu(sequence(x).transpose(1, 2), PER_CHANNEL),
    "softmax of channels": lambda x: x.softmax(1),
    "softmax of rows": lambda x: x.softmax(2),
    "log_softmax of columns": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(sequence(x), (CHANNELS,), PER_CHANNEL, PER_CHANNEL),
    "layer_norm with a bias alone": lambda x: F.layer_norm(sequence(x), (CHANNELS,), None, PER_CHANNEL),
    "group_norm with a bias alone": lambda x: F.group_norm(x, 2, None, PER_CHANNEL),
    "places of a mask": lambda x: x[:, :, MASK],
    "layer_norm of all": lambda x: F.layer_norm(x, x.shape[1:], eps=1e-3),
    "group_norm": lambda x: F.group_norm(x, 2, PER_CHANNEL, PER_CHANNEL),
    "instance_norm": F.instance_norm,
    "rms_norm": lambda x: F.rms_norm(sequence(x), (CHANNELS,), PER_CHANNEL),
    "batch_norm of sequences": lambda x: F.batch_norm(
        sequence(x).transpose(1, 2), PER_CHANNEL, PER_CHANNEL.abs(), PER_CHANNEL, PER_CHANNEL
    ),
    "norm of length 1": lambda x: F.normalize(x, dim=1) + F.normalize(x, dim=-1),
    "standardised by hand": standardised,
    "matmul": lambda x: sequence(x) @ sequence(x).transpose(1, 2) @ sequence(x),
    "matmul of maps": lambda x: x @ x.transpose(2, 3),
    "matmul by constants": lambda x: (drawn(4, HEIGHT) @ x).transpose(1, 3) @ MATRIX,
    "bmm": lambda x: torch.bmm(x.flatten(2), sequence(x)),
    "addmm": lambda x: torch.addmm(OTHERS, x.flatten(1)[:, :8], MATRIX[:, :6]),
    "einsum": lambda x: torch.einsum("nchw,ncvw->nhv", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(*[heads(x)] * 3).transpose(1, 2).flatten(2),
    "attention of the past": lambda x: F.scaled_dot_product_attention(*[heads(x)] * 3, is_causal=True),
    "attention of windows": windows,
    "linear of pixels": lambda x: F.linear(x.permute(0, 2, 3, 1), MATRIX, PER_CHANNEL),
    "conv1d of sequences": lambda x: F.conv1d(sequence(x).transpose(1, 2), drawn(6, CHANNELS, 3), padding=1),
    "depthwise": lambda x: F.conv2d(x, drawn(CHANNELS, 1, 3, 3), PER_CHANNEL, padding=1, groups=CHANNELS),
    "depthwise, strided and dilated": lambda x: F.conv2d(
        x, drawn(CHANNELS, 1, 3, 3), None, 2, 2, 2, groups=CHANNELS
    ),
    "conv3d": lambda x: F.conv3d(volume(x), drawn(6, 2, 3, 3, 3), OTHERS, padding=1, stride=(1, 2, 1)),
    "pools in three dimensions": lambda x: F.avg_pool3d(
        F.max_pool3d(volume(x), 2, 2), (2, 3, 2), 1, (1, 1, 0)
    ),
    "conv_transpose1d": lambda x: F.conv_transpose1d(
        x.flatten(2), drawn(CHANNELS, 6, 5), stride=3, padding=2
    ),
    "conv_transpose2d": lambda x: F.conv_transpose2d(
        x, drawn(CHANNELS, 6, 4, 4), OTHERS, stride=2, padding=1
    ),
    "conv_transpose2d of groups": lambda x: F.conv_transpose2d(
        x, drawn(CHANNELS, 3, 3, 2), None, (2, 3), (0, 1), (1, 2), groups=2
    ),
    "conv_transpose2d, dilated": lambda x: F.conv_transpose2d(
        x, drawn(CHANNELS, 6, 3, 3), OTHERS, padding=1, dilation=2
    ),
    "pad": lambda x: F.pad(F.pad(x, (1, 2, 0, 3)), (-1, 2), value=1.5),
    "pad with the map": lambda x: F.pad(
        F.pad(x, (1, 2, 2, 1), mode="reflect"), (1, 0, 0, 0), mode="replicate"
    ),
    "stack": lambda x: torch.stack([x, 2 * x], 2),
    "cat in every dimension": lambda x: torch.cat([torch.cat([torch.cat([x, -x], 1)] * 2, 2)] * 2, 3),
    "cat with its transposed": lambda x: torch.cat([x[..., :5, :], x[..., :5, :].transpose(2, 3)], 1),
    "class token": lambda x: (
        torch.cat([TOKEN.expand(len(x), -1, -1), sequence(x)], 1) + drawn(1, 31, CHANNELS)
    ),
    "parts": lambda x: torch.cat([*x.split(3, 1)[::-1], x.chunk(2, 1)[1]], 1),
    "unbind": lambda x: x.unbind(2)[1],
    "maxima and minima": lambda x: x.amax(1) + x.amin(1) + x.max(1)[0],
    "maxima of the map": lambda x: x.amax((2, 3)),
    "sums": lambda x: x.sum(1) + x.mean(1) + x.std(1),
    "means of rows": lambda x: x.mean(2).sum(2, keepdim=True),
    "broadcast": lambda x: x * x.mean((2, 3), keepdim=True) + x.mean(1, keepdim=True),
    "outer product": lambda x: x.mean(2, keepdim=True) * x.mean(3, keepdim=True),
    "where": lambda x: torch.where(MASK, x, torch.tensor(0.5)) + x.masked_fill(~MASK, -2.0),
    "slices": lambda x: x[:, 1:5, ::2, 1:],
    "indices": lambda x: x[:, [3, 1, 1]][:, :, :, torch.tensor([[0, 2], [1, 1]])],
    "flip and roll": lambda x: x.flip(2).roll((1, 2), (2, 3)),
    "pixel_shuffle": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2) + x,
    "unfold and fold": lambda x: F.fold(F.unfold(F.pad(x, (0, 1)), 2, stride=2), (6, 6), 2, stride=2),
    "unfold that overlaps": lambda x: F.unfold(x, 3, padding=1),
    "lp_pool": lambda x: F.lp_pool2d(x.abs(), 2, 2),
    "adaptive pools": lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_max_pool2d(x, (3, 2)),
    "adaptive pools whose windows differ": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "pools with ceil_mode": lambda x: (
        F.max_pool2d(x, 2, 2, ceil_mode=True) + F.avg_pool2d(x, 2, 2, ceil_mode=True)
    ),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bilinear by corners": lambda x: F.interpolate(x, size=(9, 3), mode="bilinear", align_corners=True),
    "linear": lambda x: F.interpolate(x.flatten(2), scale_factor=2, mode="linear"),
    "nearest": lambda x: F.interpolate(F.interpolate(x, scale_factor=1.5), size=(7, 8)),
    "nearest, in float32": lambda x: F.interpolate(F.interpolate(x, size=(30, 26)), size=(22, 22)),
    "reshaped across axes": lambda x: x.reshape(len(x), 16, 15).transpose(1, 2).reshape(len(x), 12, 20),
    "comparisons": lambda x: torch.cat(
        [(x > 0.5).float(), (x <= x.flip(1)).float(), (x != x.round()).float(), (x.abs() == x) * x], 1
    ),
    "conditions": lambda x: torch.where((x > 0) & ~(x > 2) | (x < -3), x, 0.1 * x.logical_not()),
    "what is chosen beside infinity": lambda x: torch.where(x.abs() > 1, 1 / x, torch.zeros(())),
    "masked by what is computed": lambda x: x.masked_fill(x < x.mean(1, keepdim=True), -torch.inf).softmax(1),
    "attention that is masked by values": lambda x: F.scaled_dot_product_attention(
        *[heads(x)] * 3, attn_mask=(sequence(x).mean(2) > -9)[:, None, None, :]
    ),
    "whole numbers": lambda x: torch.cat([x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.int()], 1),
    "remainders": lambda x: torch.cat(
        [x // 2, x % 1.5, x.fmod(2), torch.div(x, 3, rounding_mode="trunc")], 1
    ),
    "powers": lambda x: torch.cat(
        [
            (x / 9) ** 5,
            (x.abs() + 1) ** -3,
            x.abs() ** 1.5,
            x.abs() ** 0.3,
            2 ** (x / 9),
            x**0,
            (x.abs() + 1) ** x.clamp(-1, 1),
        ],
        1,
    ),
    "waves": lambda x: torch.cat([x.sin(), x.cos(), x.erf(), (x / 9).sinh(), x.abs().log1p()], 1),
    "rare activations": lambda x: torch.cat(
        [
            F.threshold(x, 0.1, -1),
            F.hardshrink(x),
            F.softshrink(x),
            F.glu(x, 1),
            F.softplus(x, 2, 1.5),
            F.rrelu(x),
        ],
        1,
    ),
    "written in place": lambda x: written(x.clone()),
    "in place where others see it": lambda x: (lambda y: y.add_(1).mul(y) + y.view(-1).relu_().view(x.shape))(
        x.clone()
    ),
    "places": lambda x: torch.cat([x.argmax(1), x.min(2)[1].flatten(1, 2)[:, :6, None].expand(-1, -1, 5)], 1),
    "a place of each sample": lambda x: sequence(x)[torch.arange(len(x)), sequence(x).mean(2).argmax(1)],
    "gathered": lambda x: (
        x.gather(1, x.argmax(1, keepdim=True)) + x.gather(1, torch.ones(len(x), 1, 6, 5).long())
    ),
    "indices of two dimensions": lambda x: x[:, :, torch.arange(3)[:, None], [0, 2]],
    "diagonals": lambda x: x.diagonal(-1, 2, 3),
    "running sums": lambda x: x.cumsum(2) + x[:, :, :3].prod(2, keepdim=True),
    "log of the sum of exponentials": lambda x: x.logsumexp((1, 3)) + (9 * x).log_softmax(1).mean((1, 3)),
    "norms of other orders": lambda x: (
        F.normalize(x, 1, 1) + F.normalize(x, torch.inf) + F.normalize(x, 3, 2)
    ),
    "distances": lambda x: (
        F.cosine_similarity(x, x.flip(1)) + F.pairwise_distance(x, x.roll(1, 3)).mean((1, 2))[:, None, None]
    ),
    "einsum of capitals": lambda x: torch.einsum("n...H,HK->n...K", x.transpose(1, 3), MATRIX),
    "einsum without a result": lambda x: torch.einsum("...H,HA", x.transpose(1, 3), MATRIX),
    "einsum of three": lambda x: torch.einsum("n...i, n...j, ik -> n...k", sequence(x), sequence(x), MATRIX),
    "bilinear layer": lambda x: F.bilinear(sequence(x), sequence(x), drawn(3, CHANNELS, CHANNELS), drawn(3)),
    "local response": lambda x: F.local_response_norm(x, 3),
    "dilated pools": lambda x: torch.cat(
        [F.max_pool2d(x, 2, 1, 1, 2).flatten(1), F.max_pool2d(x, 2, 2, 1, 2, True).flatten(1)], 1
    ),
    "pools with places": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "average pools with ceil_mode and padding": lambda x: F.avg_pool2d(x, 3, 2, 1, True),
    "dilated unfold and fold": lambda x: F.fold(F.unfold(x, 2, 2, 1), (6, 5), 2, 2, 1),
    "fold of what overlaps": lambda x: F.fold(
        F.unfold(x, 3, padding=1, stride=2), (6, 5), 3, padding=1, stride=2
    ),
    "bicubic": lambda x: (
        F.interpolate(x, (9, 3), mode="bicubic") + F.interpolate(x, (9, 3), mode="nearest-exact")
    ),
    "smaller, antialiased": lambda x: F.interpolate(x, (4, 2), mode="bilinear", antialias=True),
    "trilinear": lambda x: F.interpolate(volume(x), (2, 7, 8), mode="trilinear"),
    "other names": lambda x: torch.hstack(
        [x.swapdims(2, 3).mT, x.narrow(1, 2, 3), x.tile(1, 1, 1, 1)]
    ).movedim(1, 3),
    "a recurrent layer": nn.GRU(CHANNELS, 6, batch_first=True),
    "one value a sample": lambda x: x.mean((1, 2, 3)),
    "conditions as the output": lambda x: x > 0,
    "repeated": lambda x: x.repeat(1, 1, 2, 1) + x.mean(2, keepdim=True).expand(-1, -1, 12, -1),
    "multi-head attention": nn.MultiheadAttention(CHANNELS, 2, batch_first=True),
    "binary linear layer of sequences": bitfactor.nn.BinaryLinear(CHANNELS, 70),
    "binary convolution of volumes": bitfactor.nn.BinaryConv3d(2, 6, 3, padding=1),
    "one of them, strided": bitfactor.nn.BinaryConv3d(2, 6, (2, 3, 1), stride=2, padding=(2, 1, 0)),
}


GEOMETRIES = {  # kernel, stride, padding, output padding, groups, dilation
    "even": (4, 2, 1, 0, 1, 1),
    "odd, as a U-Net's": (3, 2, 1, 1, 1, 1),
    "without overlap, of groups": (2, 2, 0, 0, 2, 1),
    "with gaps": (2, 3, 0, 1, 1, 1),
    "one place a phase": (1, 2, 0, 1, 1, 1),
    "dilated": (3, 2, 1, 0, 1, 3),
    "dilated, with empty phases": (3, 4, 0, 0, 2, 2),
    "cut beyond the kernel": (3, 1, 2, 0, 1, 1),
    "of each side another": ((3, 4), (2, 3), (1, 0), (1, 2), 1, (1, 2)),
}
for what, (kernel, stride, padding, extra, groups, dilation) in GEOMETRIES.items():
    both = (CHANNELS, 6, kernel, stride, padding, extra, groups, True, dilation)
    OPERATIONS[f"binary transposed convolution, {what}"] = bitfactor.nn.BinaryConvTranspose2d(*both)
    OPERATIONS[f"transposed convolution, {what}"] = nn.ConvTranspose2d(*both)
OPERATIONS |= {
    "binary transposed convolution of lines": bitfactor.nn.BinaryConvTranspose1d(CHANNELS, 6, 3, 2, 1, 1),
    "transposed convolution of volumes": nn.ConvTranspose3d(2, 4, (2, 3, 4), (1, 2, 2), (0, 1, 1), groups=2),
    "one of the magnitude": bitfactor.nn.BinaryConvTranspose2d(
        CHANNELS, 6, 3, 2, 1, 1, groups=2, latent="svd", scale="analytic", input_scale=True
    ),
    "binary convolution with a mirrored border": bitfactor.nn.BinaryConv2d(
        CHANNELS, 6, 3, padding=2, padding_mode="reflect"
    ),
}

FORMS = {
    bitfactor.nn.BinaryConvTranspose1d: lambda x: x.flatten(2),
    nn.GRU: sequence,
    nn.ConvTranspose3d: volume,
    nn.MultiheadAttention: sequence,
    bitfactor.nn.BinaryLinear: sequence,
    bitfactor.nn.BinaryConv3d: volume,
}


class Network(nn.Module):
    def __init__(self, operation):
        super().__init__()
        self.conv, self.operation = bitfactor.nn.BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1), operation
        self.form = FORMS.get(type(operation))

    def forward(self, x):
        y = self.conv(x) if self.form is None else self.form(self.conv(x))
        if isinstance(self.operation, nn.MultiheadAttention):
            return self.operation(y, y, y, need_weights=False)[0]
        if isinstance(self.operation, nn.GRU):
            return self.operation(y[:, :4])[0]
        return self.operation(y)


class Together(nn.ModuleList):
    """Networks of one input, for one export instead of many."""

    def forward(self, x):
        return tuple(network(x) for network in self)


def network(name):
    torch.manual_seed(0)
    return Network(OPERATIONS[name])


NAMES, AT_ONCE = [*OPERATIONS], 10


@pytest.mark.parametrize("first", range(0, len(NAMES), AT_ONCE))
def test_they_are_exported_and_run_as_in_torch(first, tmp_path):
    names = NAMES[first : first + AT_ONCE]
    model, x = Together(map(network, names)).eval(), drawn(2, CHANNELS, HEIGHT, WIDTH)
    export(model, tmp_path / "net.safetensors", x)
    reference = Session(tmp_path / "net.safetensors", isa="reference")(x.numpy())
    for name, found, y in zip(names, reference, model(x), strict=True):
        expected = y.detach().numpy()
        assert found.dtype == expected.dtype, name
        limit = 2e-5 * np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit, err_msg=name)
    for isa in instruction_sets():
        outputs = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        for name, found, expected in zip(names, outputs, reference, strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=name)


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(20, 16), bitfactor.nn.BinaryLinear(16, 6)

    def forward(self, indices):
        return self.layer(self.table(indices))


def test_an_embedding_refuses_what_it_has_no_row_for(tmp_path):
    torch.manual_seed(0)
    model, indices = Embedded().eval(), torch.arange(14).reshape(2, 7)
    export(model, tmp_path / "net.safetensors", (indices,))
    for isa in (*instruction_sets(), "reference"):
        session = Session(tmp_path / "net.safetensors", isa=isa)
        found = session(indices.numpy())
        np.testing.assert_allclose(found, model(indices).detach().numpy(), atol=1e-5)
        for wrong in (20, -1):
            with pytest.raises(InputError, match=rf"expected indices of 0 to 19, found {wrong} at \[1, 2\]"):
                session(np.where(indices.numpy() == 9, wrong, indices.numpy()))


class Columns(nn.Module):
    """Each column of indices has a table of its own length."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 16) for rows in (3, 1000, 50))
        self.layer = bitfactor.nn.BinaryLinear(48, 6)

    def forward(self, indices):
        return self.layer(torch.cat([table(indices[:, i]) for i, table in enumerate(self.tables)], 1))


@pytest.mark.parametrize("most", [(3, 1000, 50), (3, 3, 3)])
def test_indices_of_several_tables_may_be_in_one_input(most, tmp_path):
    torch.manual_seed(0)
    model, indices = Columns().eval(), torch.stack([torch.randint(0, n, (8,)) for n in most], 1)
    export(model, tmp_path / "net.safetensors", (indices,))
    largest = torch.tensor([[2, 999, 49]])
    for isa in (*instruction_sets(), "reference"):
        session = Session(tmp_path / "net.safetensors", isa=isa)
        np.testing.assert_allclose(session(largest.numpy()), model(largest).detach().numpy(), atol=1e-5)
        for wrong, rows, column in (([[3, 0, 0]], 3, 0), ([[0, 0, 50]], 50, 2), ([[0, -1, 0]], 1000, 1)):
            found = f"indices of 0 to {rows - 1}, found {wrong[0][column]} at"
            with pytest.raises(InputError, match=rf"{found} \[0, {column}\]"):
                session(np.array(wrong))


class Causal(nn.Module):
    """Attention whose values are sums of signs: many are 0, and their weights next to a masked place are."""

    def __init__(self):
        super().__init__()
        self.all, self.out = (bitfactor.nn.BinaryLinear(32, n, bias=False) for n in (96, 32))

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.all(x).reshape(n, length, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, length, 32))


def test_the_sign_of_what_a_mask_leaves_out_is_that_of_torch(tmp_path):
    torch.manual_seed(0)
    model, x = Causal().eval(), torch.randn(4, 6, 32)
    assert (model.all(x)[:, 0] == 0).any(), "the sign of 0 is what this is about"
    report = export(model, tmp_path / "net.safetensors", x)
    assert report.max_difference < 1e-3
    for isa in (*instruction_sets(), "reference"):
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-4)


def test_no_cause_is_named_where_torch_itself_has_no_number_for_zeros(tmp_path):
    class Inverse(nn.Module):
        def forward(self, x):
            return torch.where(x > 0, 1.0, -1.0) / x

    report = export(Inverse().eval(), tmp_path / "net.safetensors", torch.randn(4, 8), binary=False)
    assert not any("zeros" in line for line in report.warnings)


class Beside(nn.Module):
    """An operation on the inputs, beside a binary layer."""

    def __init__(self, operation):
        super().__init__()
        self.layer, self.operation = bitfactor.nn.BinaryLinear(8, 16), operation

    def forward(self, x, *others):
        return self.layer(x), self.operation(x, *others)


X, TABLE, NARROW = drawn(2, 8), drawn(4, 2), drawn(4, 1)


def rows(x):
    return x.view(-1, 4, 2)


def attended(x, mask):
    return F.scaled_dot_product_attention(*[rows(x)] * 3, attn_mask=mask[:, None, :])


def numbers(*given):
    return F.pad(torch.tensor([given]).float(), (0, 8 - len(given)))


# Exported with an example, and compared where the example does not show what is special.
SPECIAL = {
    "attention of what is all hidden": (
        attended,
        (X, torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()),
        (X, torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0]]).bool()),
    ),
    "of two sums of masks": (
        lambda x, mask: attended(x, 2 * torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)),
        (X, torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()),
        (X, torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0]]).bool()),
    ),
    "hidden by large numbers alone": (
        lambda x, mask: attended(x, torch.where(mask, 0.0, torch.finfo(torch.float32).min)),
        (X, torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()),
        (X, torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0]]).bool()),
    ),
    "hidden by a number of the model's own": (
        lambda x, mask: attended(x, torch.where(mask, 0.0, -1e30)),
        (X, torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()),
        (X, torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0]]).bool()),
    ),
    "by a constant": (
        lambda x: attended(x, torch.tensor([[False] * 4, [True] * 4])[:1]),
        (X,),
        (X,),
    ),
    "a place from the end": (
        lambda x, i: rows(x)[torch.arange(len(x)), i - 1],
        (X, torch.tensor([1, 4])),
        (X, torch.tensor([0, -1])),
    ),
    "an embedding of one channel": (
        lambda x, i: F.embedding(i, NARROW),
        (X, torch.tensor([[0, 1], [2, 0]])),
        (X, torch.tensor([[3, 1], [2, 0]])),
    ),
    "the larger of far numbers": (
        lambda x: torch.minimum(torch.maximum(x, torch.zeros(())), torch.tensor(0.37)),
        (X,),
        (numbers(1e3, 1e6, -1e8, 1e20),),
    ),
    "between tensors": (
        lambda x: x.exp().clamp(PER_CHANNEL.abs(), PER_CHANNEL.abs() + 1) + torch.maximum(x, x.flip(1)),
        (X,),
        (numbers(1e3, 20, -1e8, 80),),
    ),
    "the place of the first of infinities": (
        lambda x: (1 / x.relu()).argmax(1),
        (X.abs() + 1,),
        (numbers(1, -2, 3),),
    ),
    "no numbers": (
        lambda x: torch.stack(
            [torch.nan_to_num(x / x, 7.0), *(c(x / x, 0.5) for c in (torch.ge, torch.le, torch.ne, torch.eq))]
        ).movedim(0, 1),
        (X,),
        (numbers(1, 2, -3),),
    ),
    "waves of large numbers": (
        lambda x: torch.cat([x.sin(), x.cos()], 1),
        (X,),
        (numbers(1e2, -1e4, 1e5, 123456, 1e6, -5e6),),
    ),
    "any and all integers": (
        lambda x, i: torch.cat([i.any(1, keepdim=True), i.all(1, keepdim=True)], 1),
        (X, torch.tensor([[1, 0], [0, 0]])),
        (X, torch.tensor([[3, -2], [0, -1]])),
    ),
    "the least of what is not infinite": (
        lambda x: (
            x.masked_fill(x > 0, torch.inf).amin(1) + torch.where(torch.arange(8) < 4, x, torch.inf).amin(1)
        ),
        (X,),
        (numbers(1, -2, 3),),
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, tmp_path):
    torch.manual_seed(0)
    operation, example, given = SPECIAL[name]
    model = Beside(operation).eval()
    export(model, tmp_path / "net.safetensors", example)
    expected = model(*given)[1].numpy()
    for isa in (*instruction_sets(), "reference"):
        found = Session(tmp_path / "net.safetensors", isa=isa)(*(x.numpy() for x in given))[1]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-5)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x, i: F.embedding(i + 1, TABLE),
        lambda x, i: x.gather(1, i),
        lambda x, i: F.one_hot(i, 8).float(),
        lambda x, i: rows(x)[torch.arange(len(x)), i[:, 1]],
    ],
)
@pytest.mark.parametrize("wrong", [8, -9])
def test_a_place_that_is_not_there(operation, wrong, tmp_path):
    model = Beside(operation).eval()
    export(model, tmp_path / "net.safetensors", (X, torch.tensor([[0, 1], [2, 0]])))
    session = Session(tmp_path / "net.safetensors")
    with pytest.raises(InputError, match="a place that is not there"):
        session(X.numpy(), np.array([[0, 1], [2, wrong]]))


def test_bits_of_integers_are_refused(tmp_path):
    integers = torch.tensor([[1, 0], [0, 1]])
    with pytest.raises(InputError, match="conditions, found integers"):
        export(Beside(lambda x, i: i & i).eval(), tmp_path / "net.safetensors", (X, integers))
