"""Binary layers that are made of plain torch, in the ways in which published code makes them.

Each idiom is one of the two such layers of a network: exported, compared with torch, and run by every
instruction set and as a frozen program in the C library. Of the networks that become the same operations, one
is run as C99 and in WebAssembly too.
"""

from ctypes import byref, c_float
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.cases import slow_beside
from tests.native.test_c_api import LIBRARY, OK
from tests.targets.c99.conftest import compiled as compiled
from tests.targets.page.conftest import node as node
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.format import load
from bitfactor.format.graph import run, total
from bitfactor.format.model import golden_input
from bitfactor.runtime import Session, instruction_sets

CHANNELS = 16


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def polynomial(x):
    """What a straight-through gradient of second degree leaves in the forward pass."""
    rising = torch.where(x < 0, x * x + 2 * x, -x * x + 2 * x)
    inside = (x.abs() < 1).type(torch.float32)
    return rising * inside + torch.sign(x) * (1 - inside)


def with_gradient_of(value, smooth):
    return value.detach() - smooth.detach() + smooth


SHIFT = drawn(1, CHANNELS, 1, 1)
ACTIVATIONS = {
    "sign": torch.sign,
    "where": lambda x: torch.where(x > 0, 1.0, -1.0),
    "at least": lambda x: torch.where(x >= 0, 1.0, -1.0),
    "threshold": lambda x: torch.where(x > 0.25, 1.0, -1.0),
    "comparison": lambda x: 2 * (x > 0).float() - 1,
    "falling": lambda x: 1 - 2 * (x.ge(0.1)).to(x.dtype),
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(1.0)),
    "zero and one": lambda x: (x >= 0.3).float(),
    "masked fill": lambda x: torch.ones_like(x).masked_fill(x <= 0, -1.0),
    "rounded": lambda x: torch.round(x.clamp(0, 1)),
    "behind a ReLU": lambda x: torch.sign(F.relu(x)),
    "behind a max pool": lambda x: torch.sign(F.max_pool2d(F.relu(x), 3, 1, 1)),
    "sign of a sign": lambda x: torch.sign(torch.sign(x) + 0.5),
    "own values": lambda x: 0.75 * (torch.sign(x) + 0.25),
    "straight-through": lambda x: with_gradient_of(torch.sign(x), polynomial(x)),
    "straight-through, joined": lambda x: (torch.sign(x) - x.clamp(-1, 1)).detach() + x.clamp(-1, 1),
    "straight-through, last": lambda x: x + (torch.sign(x) - x).detach(),
    "shifted": lambda x: torch.sign(x + SHIFT.expand_as(x)),
    "learned threshold": lambda x: (x > SHIFT).float(),
    "hardtanh": lambda x: torch.sign(F.hardtanh(x)),
    "normalised": lambda x: torch.sign(
        (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)
    ),
    "pooled": lambda x: F.max_pool2d(torch.sign(x), 3, 1, 1),
    "joined": lambda x: torch.cat([torch.sign(x[:, :4]), torch.where(x[:, 4:] > 0.5, 1.0, -1.0)], 1),
    "in place": lambda x: x.clone().sign_(),
}


def alpha(w):
    return w.abs().mean((1, 2, 3), keepdim=True)


def standardised(w):
    w = w - w.mean((1, 2, 3), keepdim=True)
    return w / w.std((1, 2, 3), keepdim=True)


ROTATION = drawn(9, 9)
WEIGHTS = {
    "signs": torch.sign,
    "alpha of a filter": lambda w: alpha(w) * torch.sign(w),
    "alpha of the layer": lambda w: w.abs().mean() * torch.sign(w),
    "standardised": lambda w: torch.sign(standardised(w)),
    "power of two": lambda w: torch.sign(w) * 2 ** alpha(w).log2().round(),
    "straight-through": lambda w: with_gradient_of(alpha(w) * torch.sign(w), w.clamp(-1, 1)),
    "clamped by a number": lambda w: torch.sign(w.clamp(-w.abs().max().item(), 1.0)),
    "one value": lambda w: torch.sign(w.abs()) * 0.5,
    "two other values": lambda w: (
        w.mean((1, 2, 3), keepdim=True) + 0.5 * torch.sign(w - w.mean((1, 2, 3), keepdim=True))
    ),
    "zero and one": lambda w: (w > 0).float(),
    "rotated": lambda w: torch.sign((ROTATION @ w.flatten(2).transpose(1, 2)).reshape(w.shape)),
}


class Layer(nn.Module):
    """A convolution as published code writes it: latent weights, and what a forward makes of them."""

    def __init__(self, activation, weight, outputs=CHANNELS, **geometry):
        super().__init__()
        groups = geometry.get("groups", 1)
        self.latent = nn.Parameter(drawn(outputs, CHANNELS // groups, 3, 3))
        self.activation, self.weight, self.geometry = activation, weight, {"padding": 1, **geometry}

    def forward(self, x):
        return F.conv2d(self.activation(x), self.weight(self.latent), **self.geometry)


class Network(nn.Module):
    def __init__(self, activation=torch.sign, weight=torch.sign, **geometry):
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.first = Layer(activation, weight)
        self.second = Layer(activation, weight, **geometry)
        self.act = nn.PReLU(CHANNELS)
        self.head = nn.Linear(CHANNELS, 4)
        with torch.no_grad():
            for tensor in (self.norm.running_mean, self.norm.weight, self.norm.bias, self.stem.bias):
                tensor += 0.3 * drawn(CHANNELS)

    def forward(self, x):
        x = self.stem(x)
        x = self.act(self.norm(self.first(x) / 8)) + x
        return self.head(self.second(x).mean((2, 3)))


def exported(model, tmp_path, *shape):
    torch.manual_seed(0)
    return bitfactor.export(model.eval(), tmp_path / "net.safetensors", torch.randn(*(shape or (2, 3, 6, 7))))


def kinds(report):
    return [layer.kind for layer in report.layers]


SEEN = set()


def is_new(graph, where):
    """Whether this process saw no graph of the same operations, attributes and shapes there before."""
    places = {name: i for i, name in enumerate([graph.input.name, *(node.name for node in graph.nodes)])}
    nodes = [
        (n.op, [places[x] for x in n.inputs], n.attributes, {role: t.shape for role, t in n.tensors.items()})
        for n in graph.nodes
    ]
    seen, structure = len(SEEN), repr((where, graph.input.shape, nodes))
    SEEN.add(structure)
    return len(SEEN) > seen


def expect_same_everywhere(path, compiled, node=None):
    """Instruction sets and the C library give the reference's bits, C99 and WebAssembly but for rounding."""
    model = load(path)
    x = golden_input(model.graph.input.shape)
    (expected,) = run(model.graph, x)
    for isa in instruction_sets():
        np.testing.assert_array_equal(Session(path, isa=isa)(x), expected)
    bitfactor.freeze(path, path.with_suffix(".bfp"))
    network, difference = LIBRARY.bf_open(str(path.with_suffix(".bfp")).encode(), None), c_float(1)
    assert LIBRARY.bf_verify(network, byref(difference), None) == OK
    assert difference.value == 0
    LIBRARY.bf_free(network)
    if is_new(model.graph, "c99"):
        np.testing.assert_allclose(compiled(model)(x), expected, rtol=1e-5, atol=1e-5)
    if node is not None and is_new(model.graph, "node"):
        found = node("run", file=str(path.with_suffix(".bfp")), x=x, relaxed=False)
        values = np.array(found["outputs"][0][0], np.float32).reshape(expected.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("first", "second"), zip([*ACTIVATIONS][::2], [*ACTIVATIONS][1::2], strict=True))
def test_activations(first, second, tmp_path, compiled, node):
    model = Network(ACTIVATIONS[first], WEIGHTS["alpha of a filter"])
    model.second.activation = ACTIVATIONS[second]
    report = exported(model, tmp_path)
    assert kinds(report) == ["real", "binary", "binary", "real"]
    assert report.max_difference < 1e-5
    expect_same_everywhere(tmp_path / "net.safetensors", compiled, node)


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(name, tmp_path, compiled, node):
    model = Network(ACTIVATIONS["sign"], WEIGHTS[name])
    model.second.activation = ACTIVATIONS["own values"]
    report = exported(model, tmp_path)
    assert kinds(report).count("binary") >= 2
    assert not {"binary weights", "binary inputs"} & {*kinds(report)}
    assert report.max_difference < 1e-5
    expect_same_everywhere(tmp_path / "net.safetensors", compiled, node)


GEOMETRIES = [
    {"stride": 2},
    {"padding": 0},
    {"padding": "same", "dilation": 2},
    {"groups": 4},
    {"bias": drawn(CHANNELS)},
    {"padding": (2, 0), "stride": (1, 2), "outputs": 8},
]
VALUES = [("zero and one", "signs"), ("own values", "two other values")]


@pytest.mark.parametrize(
    ("place", "values"),
    slow_beside(
        [(i, VALUES[i % 2]) for i in range(len(GEOMETRIES))], product(range(len(GEOMETRIES)), VALUES)
    ),
)
def test_geometries(place, values, tmp_path, compiled):
    (activation, weight), geometry = values, GEOMETRIES[place]
    model = Network(ACTIVATIONS[activation], WEIGHTS[weight], **geometry)
    model.head = nn.Linear(geometry.get("outputs", CHANNELS), 4)
    report = exported(model, tmp_path)
    assert kinds(report).count("binary") >= 2
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_a_pad_of_signs_becomes_the_layers_own(value, tmp_path, compiled):
    def padded(x):
        return F.pad(torch.sign(x), (1, 1, 1, 1), value=value)

    model = Network(padded)
    model.first.geometry["padding"] = model.second.geometry["padding"] = 0
    report = exported(model, tmp_path)
    assert kinds(report) == ["real", "binary", "binary", "real"]
    graph = load(tmp_path / "net.safetensors").graph
    assert [n.attributes["pad_value"] for n in graph.nodes if n.op == "binary_conv2d"][1] == value
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_signs_padded_by_others_of_them_stay_signs(mode, tmp_path, compiled):
    model = Network(lambda x: F.pad(torch.sign(x), (1, 1, 1, 1), mode=mode))
    model.first.geometry["padding"] = model.second.geometry["padding"] = 0
    assert kinds(exported(model, tmp_path)) == ["real", "binary", "binary", "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


def shuffled(x):
    n, channels, *sides = x.shape
    return x.view(n, 2, channels // 2, *sides).transpose(1, 2).contiguous().view(n, channels, *sides)


MOVES = {
    "channels last": lambda x: x.permute(0, 2, 3, 1).flatten(1),
    "channels shuffled": lambda x: shuffled(x).flatten(1),
    "another memory format": lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 1).flatten(1),
    "tokens": lambda x: x.flatten(2).transpose(1, 2).contiguous().view(len(x), -1),
}


class Moved(nn.Module):
    def __init__(self, move):
        super().__init__()
        self.stem, self.layer, self.move = nn.Conv2d(3, CHANNELS, 3), Layer(torch.sign, torch.sign), move
        self.head = nn.Linear(CHANNELS * 4 * 5, 4)

    def forward(self, x):
        return self.head(self.move(self.layer(self.stem(x))))


@pytest.mark.parametrize("move", MOVES)
def test_maps_in_another_order_are_followed(move, tmp_path, compiled):
    assert kinds(exported(Moved(MOVES[move]), tmp_path)) == ["real", "binary", "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


def test_a_network_in_another_memory_format_is_exported(tmp_path, compiled):
    torch.manual_seed(0)
    model = Moved(lambda x: F.max_pool2d(x, (4, 1)).flatten(1)).eval().to(memory_format=torch.channels_last)
    model.head = nn.Linear(CHANNELS * 5, 4).eval()
    x = torch.randn(2, 3, 6, 7).to(memory_format=torch.channels_last)
    assert kinds(bitfactor.export(model, tmp_path / "net.safetensors", x)) == ["real", "binary", "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


class Multiplied(nn.Module):
    def __init__(self, product):
        super().__init__()
        self.latent, self.bias, self.product = nn.Parameter(drawn(64, 24)), nn.Parameter(drawn(24)), product
        self.stem, self.head = nn.Linear(9, 64), nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.product(torch.sign(self.stem(x)), torch.sign(self.latent), self.bias))


@pytest.mark.parametrize(
    "product",
    [
        lambda x, w, b: torch.mm(x, w) + b,
        lambda x, w, b: x @ w,
        lambda x, w, b: torch.addmm(b, x, w),
        lambda x, w, b: x.matmul(w.t().contiguous().t()) - b,
    ],
    ids=["mm", "@", "addmm", "matmul"],
)
def test_products_of_matrices_are_layers(product, tmp_path, compiled):
    assert kinds(exported(Multiplied(product), tmp_path, 3, 9)) == ["real", "binary", "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


@pytest.mark.parametrize(("activation", "warned"), [("sign", True), ("where", False)])
def test_a_sign_that_is_0_for_an_input_of_zeros_is_warned_of(activation, warned, tmp_path):
    model = Network(ACTIVATIONS[activation])
    model.stem.bias = None
    warnings = exported(model, tmp_path).warnings
    assert any("for an input of zeros the file differs from torch" in line for line in warnings) == warned


def test_a_file_that_is_far_from_torch_on_its_examples_is_warned_of(tmp_path):
    class Divided(Network):
        def forward(self, x):
            return super().forward(torch.floor(x / 41))

    x = 41.0 * torch.randint(0, 6, (2, 3, 6, 7), generator=torch.Generator().manual_seed(0))
    report = bitfactor.export(Divided().eval(), tmp_path / "net.safetensors", x)
    assert any(
        "on the inputs it was checked on, the file differs from torch by" in w for w in report.warnings
    )
    assert not any("it was checked on" in line for line in exported(Network(), tmp_path).warnings)


class Others(nn.Module):
    """A linear layer over a sequence, and a convolution over one dimension."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(2, 32, 3, padding=1)
        self.tall, self.wide = nn.Parameter(drawn(24, 32)), nn.Parameter(drawn(24, 24, 3))
        self.bias = nn.Parameter(drawn(24))

    def forward(self, x):
        x = self.stem(x).transpose(1, 2)
        x = F.linear(torch.sign(x), self.tall.sign() * self.tall.abs().mean(1, keepdim=True), self.bias)
        return F.conv1d(torch.sign(x - 0.2).transpose(1, 2), self.wide.sign(), padding=1).mean(2)


def test_linear_layers_and_one_dimension(tmp_path, compiled):
    report = exported(Others(), tmp_path, 2, 2, 9)
    assert kinds(report) == ["real", "binary", "binary"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


class Annealed(Network):
    """The weights turn from clamps into signs as a buffer falls; `.data` and `.item()` are asked for."""

    def __init__(self, temperature):
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature))
        self.first.weight = self.second.weight = self.soft

    def soft(self, w):
        w = w.data
        return w.sign() if self.temperature < 1e-3 else (w / self.temperature.item()).clamp(-1, 1)


def test_a_branch_on_a_buffer_is_followed_with_its_value(tmp_path):
    assert kinds(exported(Annealed(1e-4), tmp_path)) == ["real", "binary", "binary", "real"]
    assert kinds(exported(Annealed(0.5), tmp_path)) == ["real", "binary inputs", "binary inputs", "real"]


def test_it_says_why_a_layer_is_binary_or_not(tmp_path):
    whys = [layer.why for layer in exported(Network(), tmp_path).layers]
    assert whys[0] == "its input is real-valued; a filter has 27 values"
    assert whys[1] == "its input is -1 or 1, each filter has two values"


@pytest.mark.parametrize(
    "weight",
    [
        lambda w: torch.where(w.abs() > 0.5, torch.sign(w), 0.0),
        lambda w: torch.round(w.clamp(-1, 1) * 1.5 + 1.5) / 1.5 - 1,
    ],
    ids=["ternary", "2 bits"],
)
def test_weights_of_more_values_are_named(weight, tmp_path):
    with pytest.raises(
        InputError, match=r"none; stem: .*; first: its input is real-valued; a filter has [34] val"
    ):
        exported(Network(F.relu, weight), tmp_path)


def test_a_third_value_that_happens_is_refused_by_name(tmp_path):
    model = Network()
    model.second.activation = lambda x: torch.sign(F.hardshrink(x, 0.2))
    with pytest.raises(InputError, match="second: expected an input of two values, -1 and 1, found 0 as"):
        exported(model, tmp_path)


def test_a_sign_of_complex_numbers_is_refused(tmp_path):
    with pytest.raises(InputError, match="complex"):
        exported(Network(lambda x: torch.sgn(torch.complex(x, x)).real), tmp_path)


@pytest.mark.parametrize("name", ["alpha of a filter", "alpha of the layer", "signs"])
def test_binary_weights_of_real_inputs_are_bits_in_the_file(name, tmp_path, compiled, node):
    report = exported(Network(F.hardtanh, WEIGHTS[name]), tmp_path)
    assert kinds(report) == ["real", "binary weights", "binary weights", "real"]
    assert [layer.ratio for layer in report.layers] == [1, 32, 32, 1]
    assert report.max_difference < 1e-5
    expect_same_everywhere(tmp_path / "net.safetensors", compiled, node)


def test_binary_weights_in_8_bits(tmp_path):
    path, samples = tmp_path / "net.safetensors", torch.randn(40, 3, 6, 7)
    model = Network(F.hardtanh, WEIGHTS["alpha of a filter"]).eval()
    bitfactor.export(model, path, samples[:2], calibration=samples)
    expected = model(samples).detach().numpy()
    for isa in instruction_sets():
        found = Session(path, isa=isa, precision="low")(samples.numpy())
        assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_binary_weights_are_counted_as_what_they_are(tmp_path):
    exported(Network(F.relu, torch.sign), tmp_path)
    model = load(tmp_path / "net.safetensors")
    costs = total(model.graph)
    assert costs.binary_macs == 0
    assert costs.binary_bytes == model.tensor_bytes()["binary"] == 2 * CHANNELS * CHANNELS * 9 // 8


def test_signs_and_real_weights_are_a_real_layer_that_reads_signs(tmp_path, compiled):
    report = exported(Network(ACTIVATIONS["straight-through"], lambda w: w), tmp_path)
    assert kinds(report) == ["real", "binary inputs", "binary inputs", "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)


@pytest.mark.parametrize(("weights", "kind"), [(True, "binary weights"), (False, "binary inputs")])
@pytest.mark.parametrize("scale", ["learned", "none"])
def test_a_stage_of_training_is_exported_as_it_stands(weights, kind, scale, tmp_path, compiled):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(96, 4)
    )
    bitfactor.binarize_(model, latent="none", scale=scale)
    layer = model[2]
    layer.binary_weights, layer.binary_activations = weights, not weights
    report = exported(model, tmp_path)
    assert kinds(report) == ["real", kind, "real"]
    expect_same_everywhere(tmp_path / "net.safetensors", compiled)
