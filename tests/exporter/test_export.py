"""Models of a user's own: the file does what torch does, or there is one clear error."""

import importlib
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.decompositions import Dense
from bitfactor.exporter import export
from bitfactor.format import load
from bitfactor.nn import BinaryLayer, LearnedScale
from bitfactor.runtime import Session, instruction_sets


class Grouped(nn.Sequential):
    """Every option of a convolution, widths that are no multiple of 64, biases, PReLU, pooling."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 20, 3, padding="same"),
            nn.BatchNorm2d(20),
            nn.Conv2d(20, 70, 3, stride=2, padding=(2, 1), bias=True),
            nn.PReLU(70),
            nn.MaxPool2d(3, 2, 1),
            nn.BatchNorm2d(70),
            nn.Conv2d(70, 30, 3, dilation=2, padding="same", groups=2),
            nn.PReLU(),
            nn.Conv2d(30, 30, (3, 1), groups=30),
            nn.AvgPool2d(2, padding=1),
            nn.Flatten(),
            nn.Linear(30 * 1 * 2, 10),
        )


class TwoHeads(nn.Module):
    """Two outputs; a value that is signed twice; a product with a constant."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
        self.left, self.right = (nn.Conv2d(16, 8, 3, padding=1, bias=False) for _ in range(2))
        self.last = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        x = self.first(x)
        left = torch.relu(self.left(self.bn1(x))) * 0.5
        right = self.right(self.bn2(x)) + 1.0
        return self.last(left + right), right


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(48, 100), nn.BatchNorm1d(100), nn.Linear(100, 70), nn.ReLU(), nn.Linear(70, 4)
    )


def vgg():
    """Plain convolutions and pools, then linear layers with dropout, as VGG and AlexNet have them."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.Hardtanh(),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d((2, 1)),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, 40),
        nn.BatchNorm1d(40),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.5),
        nn.Linear(40, 10),
        nn.Softmax(1),
    )


MODELS = {"grouped": Grouped, "two heads": TwoHeads, "mlp": mlp, "vgg": vgg}


def trained_like(model, latent="none", **options):
    """Make a model binary and give it the statistics that training would: signs and sizes of all kinds."""
    binarize_(model, Binarization(latent=latent, **options))
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, LearnedScale):
            module.alpha.data *= torch.randn(len(module.alpha), generator=generator)
            module.alpha.data[0] = 0
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.weight.data.normal_(generator=generator)
            module.weight.data[0] = 0
            module.bias.data.normal_(generator=generator)
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.1, 2, generator=generator)
    return model.eval()


def images(n=2, size=(10, 7)):
    return torch.randn(n, 3, *size, generator=torch.Generator().manual_seed(0))


SIZES = {"grouped": (10, 7), "two heads": (10, 7), "mlp": (4, 4), "vgg": (26, 14)}


@pytest.mark.parametrize("padding_value", [-1, 0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_the_file_does_what_torch_does(name, padding_value, tmp_path):
    torch.manual_seed(0)
    model = trained_like(MODELS[name](), padding_value=padding_value)
    x = images(8, SIZES[name])
    export(model, tmp_path / "net.safetensors", x[:2])
    with torch.inference_mode():
        expected = model(x)
    for isa in [*instruction_sets(), "reference"]:
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        for y, z in zip(*((v if isinstance(v, tuple) else (v,)) for v in (expected, found)), strict=True):
            np.testing.assert_allclose(z, y.numpy(), rtol=1e-4, atol=1e-4)


def test_a_binary_chain_is_equal_bit_for_bit(tmp_path):
    """From signs to sums to thresholds, without a real convolution in between."""
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(3), nn.Conv2d(3, 70, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(70)]
    layers += [nn.Conv2d(70, 33, 3, stride=2), nn.BatchNorm2d(33)]
    model = trained_like(nn.Sequential(*layers), real_ends=False)
    export(model, tmp_path / "net.safetensors", images())
    x = images(16, (10, 7))
    with torch.inference_mode():
        expected = model(x)
    np.testing.assert_array_equal(Session(tmp_path / "net.safetensors")(x.numpy()), expected.numpy())
    ops = [node.op for node in load(tmp_path / "net.safetensors").graph.nodes]
    assert ops == ["threshold", "binary_conv2d", "threshold", "binary_conv2d", "scale", "affine", "affine"]


class Sequence(nn.Module):
    """A network over sequences (C, L): each form of convolution and pool, and a split in two."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(3, 8, 5, 2, padding=2), nn.BatchNorm1d(8), nn.MaxPool1d(2))
        self.wide = nn.Sequential(
            nn.Conv1d(8, 8, 3, padding="same", dilation=2), nn.BatchNorm1d(8), nn.ReLU6()
        )
        self.thin = nn.Conv1d(4, 4, 3, 2, 1, groups=4)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.wide(x)
        first, second = torch.split(x, 4, 1)
        first = nn.functional.avg_pool1d(first, 2)
        second = self.thin(second)
        x = nn.functional.adaptive_avg_pool1d(first * second, 1)
        return self.head(x.squeeze(2)).softmax(1)


@pytest.mark.parametrize(("padding_value", "scale"), [(-1, "learned"), (0, "learned_map"), (1, "learned")])
def test_sequences(padding_value, scale, tmp_path):
    torch.manual_seed(0)
    model, x = Sequence(), torch.randn(3, 3, 24)
    choices = Binarization("svd", scale=scale, padding_value=padding_value, depthwise=True)
    binarize_(model, choices, input_shape=x.shape)
    model.train()(x)
    report = export(model.eval(), tmp_path / "net.safetensors", x[:2])
    assert [layer.kind for layer in report.layers] == ["real", "binary", "binary", "real"]
    for isa in [*instruction_sets(), "reference"]:
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_numbers_that_move(tmp_path):
    """Shapes of any rank on the way: shuffled channels, an axis in the middle, concatenation beside it."""

    def moves(x):  # (N, 4, 9, 9)
        y = x.view(-1, 2, 2, 9, 9).permute(0, 2, 3, 1, 4)  # (N, 2, 9, 2, 9)
        y = torch.cat([y, -y], 2)
        y = y.unsqueeze(1).squeeze(1).select(3, 1).transpose(1, -1)  # (N, 9, 18, 2)
        return y[:, 2:8:3].contiguous().flatten(1)

    model = Unusual(moves)
    binarize_(model.body, Binarization("none"))
    x = images(3, (9, 9))
    export(model.eval(), tmp_path / "net.safetensors", x[:2])
    found = Session(tmp_path / "net.safetensors")(x.numpy())
    assert found.shape == (3, 2 * 18 * 2)
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def resnet(**options):
    options = {
        "blocks": (1, 1),
        "widths": (64, 128),
        "num_classes": 10,
        "in_channels": 3,
        "stem": "cifar",
    } | options
    return trained_like(bitfactor.models.ResNet(**options), "holistic")


def test_several_image_sizes(tmp_path):
    model = resnet()
    sizes = [(16, 16), (20, 12)]
    report = export(model, tmp_path / "net.safetensors", [images(2, size) for size in sizes])
    assert report.checked_inputs == 8
    session = Session(tmp_path / "net.safetensors")
    assert session.input_shapes == ((3, 16, 16), (3, 20, 12))
    for size in sizes:
        x = images(5, size)
        np.testing.assert_allclose(session(x.numpy()), model(x).detach(), rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match=r"expected shape \(N, 3, 16, 16\) or \(N, 3, 20, 12\)"):
        session(images(1, (20, 20)).numpy())


def test_sequences_of_several_lengths(tmp_path):
    torch.manual_seed(0)
    model, lengths = Sequence(), (24, 40)
    binarize_(model, Binarization("svd"))
    export(model.eval(), tmp_path / "net.safetensors", [torch.randn(2, 3, length) for length in lengths])
    for length in lengths:
        x = torch.randn(3, 3, length)
        found = Session(tmp_path / "net.safetensors")(x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [nn.AdaptiveMaxPool2d(2), nn.Upsample((48, 48))])
def test_a_network_that_is_bound_to_one_size_is_not_exported_for_two(head, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1), head)
    binarize_(model, Binarization("none"))
    with pytest.raises(InputError, match="expected the same operations for each size of the input"):
        export(model.eval(), tmp_path / "net.safetensors", [images(2, (8, 8)), images(2, (16, 16))])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("real", "share", "error"), [("float16", 0.55, 1e-3), ("int8", 0.35, 2e-2)])
def test_smaller_real_layers(real, share, error, tmp_path):
    torch.manual_seed(0)
    model = trained_like(nn.Sequential(*[nn.Conv2d(3, 64, 7), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 99, 3)]))
    x = images(2, (12, 12))
    full = export(model, tmp_path / "full.safetensors", x)
    small = export(model, tmp_path / "small.safetensors", x, real=real)
    weights = [
        sum(layer.file_bytes for layer in report.layers if layer.kind == "real") for report in (full, small)
    ]
    assert weights[1] < share * weights[0]
    assert full.real_error < 1e-6 < small.real_error < error
    expected = Session(tmp_path / "small.safetensors", isa="reference")(x.numpy())
    for isa in instruction_sets():
        np.testing.assert_array_equal(Session(tmp_path / "small.safetensors", isa=isa)(x.numpy()), expected)


def test_weights_beyond_the_range_of_float16_are_an_error(tmp_path):
    model = trained_like(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1)))
    model[0].weight.data *= 1e7
    with pytest.raises(InputError, match=r"node '0' \(conv2d\): expected torch's values within 0.005"):
        export(model, tmp_path / "net.safetensors", images(), real="float16")


def test_an_unknown_form_of_real_layers(tmp_path):
    with pytest.raises(InputError, match=r"real\): expected one of float32, float16, int8, found 'int4'"):
        export(resnet(), tmp_path / "net.safetensors", images(), real="int4")


def test_the_report_says_why_and_warns(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 70, 3), nn.Conv2d(70, 4, 1))
    binarize_(model, Binarization("none", scale="learned"), keep_real=[])
    model[2].latent.weight.data *= 100
    model.append(nn.Conv2d(4, 2, 1))
    report = export(model.eval(), tmp_path / "net.safetensors", images())
    assert [layer.why for layer in report.layers] == [
        "first layer", "turned binary", "turned binary", "last layer", "never went through binarize_",
    ]  # fmt: skip
    few, never, beyond = report.warnings
    assert few.startswith("too few signs per output")
    assert few.endswith(": 1 (8)")
    assert never == "real-valued, and never went through binarize_: 4"
    assert "beyond -1 ... 1" in beyond
    assert "2 (" in beyond
    assert all(f"warning: {warning}" in str(report) for warning in report.warnings)
    stored = load(tmp_path / "net.safetensors").report
    assert stored["warnings"] == list(report.warnings)
    assert [layer["macs"] for layer in stored["layers"]] == [layer.macs for layer in report.layers]


@pytest.mark.parametrize(("estimator", "frozen"), [("clipped", True), ("rms", False), ("identity", False)])
def test_large_weights_are_worth_a_warning_where_they_get_no_gradient(estimator, frozen, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 64, 3))
    binarize_(model, Binarization("none", weight_estimator=estimator, real_ends=False))
    model[0].latent.weight.data *= 100
    warnings = export(model.eval(), tmp_path / "net.safetensors", images()).warnings
    assert any("no gradient" in warning for warning in warnings) == frozen


def test_what_is_computed_twice_is_computed_once(tmp_path):
    """Two layers that read one value share its signs; a module called twice on it is called once."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.left, self.right = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
            self.last = nn.Conv2d(8, 4, 1)

        def forward(self, x):
            x = self.stem(x)
            return self.last(self.left(x) + self.right(x) + self.left(x))

    report = export(trained_like(Shared()), tmp_path / "net.safetensors", images())
    ops = [node.op for node in load(tmp_path / "net.safetensors").graph.nodes]
    assert (ops.count("threshold"), ops.count("binary_conv2d")) == (1, 2)
    assert report.folded["threshold"] == 2


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maps_that_are_joined_stay_maps(dim, tmp_path):
    """What follows runs in the same pass, and nothing holds the image to one size."""

    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.conv = nn.Conv2d(3, 8, 1), nn.Conv2d(8 * (1 + (dim == 1)), 4, 3)

        def forward(self, x):
            x = self.stem(x)
            return self.conv(torch.cat([x, x.narrow(dim, 1, x.shape[dim] - 2), x.narrow(dim, 0, 2)], dim))

    report = export(trained_like(Joined(), real_ends=False), tmp_path / "net.safetensors", images())
    ops = [node.op for node in load(tmp_path / "net.safetensors").graph.nodes]
    assert "rearrange" not in ops
    assert report.max_difference < 1e-4


@pytest.mark.parametrize("scale", ["none", "analytic", "learned", "learned_map", "learned_channel_x_axes"])
def test_every_scale(scale, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)
    )
    binarize_(model, Binarization(latent="tucker", scale=scale), input_shape=(1, 3, 10, 7))
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    assert export(model.eval(), tmp_path / "net.safetensors", images()).max_difference < 1e-5


def test_the_magnitude_of_the_input(tmp_path):
    """XNOR-Net: K multiplies the sums of every binary layer, on every instruction set."""
    torch.manual_seed(0)
    model, x = Grouped().eval(), images(4)
    binarize_(model, latent="none", scale="analytic", input_scale=True)
    report = export(model, tmp_path / "net.safetensors", x)
    why = {layer.why for layer in report.layers if layer.kind == "real"}
    assert "the magnitude of a binary layer's input" in why
    for isa in instruction_sets():
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)


def test_the_model_is_left_as_it_was(tmp_path):
    model = trained_like(Grouped(), latent="svd")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    export(model, tmp_path / "net.safetensors", images())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert any(isinstance(module, BinaryLayer) for module in model)


def test_one_wrong_weight_bit_is_caught_before_the_file_appears(tmp_path, monkeypatch):
    module = importlib.import_module("bitfactor.exporter.export")
    fold = module.fold

    def broken(graph):
        graph, stands_for = fold(graph)
        for node in graph.nodes:
            if node.op == "binary_linear":
                node.tensors["weight"][0, 0] ^= np.uint64(1)
        return graph, stands_for

    monkeypatch.setattr(module, "fold", broken)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 4))
    binarize_(model, Binarization(latent="none", real_ends=False))
    model.eval()
    with pytest.raises(InputError, match=r"\(binary_linear\): expected torch's values exactly, found 2"):
        export(model, tmp_path / "net.safetensors", images(2, (2, 2)))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_sign_in_a_baked_layer_is_caught(tmp_path, monkeypatch):
    module = importlib.import_module("bitfactor.exporter.trace")
    bake = module.bake

    def broken(model):
        baked = bake(model)
        baked.get_submodule("2").weight[0, 0] *= -1
        return baked

    monkeypatch.setattr(module, "bake", broken)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 4))
    binarize_(model, Binarization(latent="none", real_ends=False))
    model.eval()
    with pytest.raises(InputError, match="Sequential: expected a trace that gives the model's outputs"):
        export(model, tmp_path / "net.safetensors", images(2, (2, 2)))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_threshold_is_caught(tmp_path, monkeypatch):
    module = importlib.import_module("bitfactor.exporter.fold")
    of_floats = module.of_floats

    def broken(*arguments):
        threshold, direction = of_floats(*arguments)
        return threshold + np.float32(0.5), direction

    monkeypatch.setattr(module, "of_floats", broken)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)]
    with pytest.raises(InputError, match=r"\(threshold\): expected torch's values exactly"):
        export(trained_like(nn.Sequential(*layers)), tmp_path / "net.safetensors", images())
    assert list(tmp_path.iterdir()) == []


def test_a_golden_output_that_differs_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys.modules["bitfactor.exporter.export"], "run", lambda graph, x: (np.zeros((1, 4), np.float32),)
    )
    with pytest.raises(InputError, match="golden output"):
        export(trained_like(mlp()), tmp_path / "net.safetensors", images(2, (4, 4)))
    assert list(tmp_path.iterdir()) == []


class Unusual(nn.Module):
    """Binary behind a stem, then `operation`."""

    def __init__(self, operation):
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 4, 1), nn.Sequential(*(nn.Conv2d(4, 4, 1) for _ in range(3)))
        self.operation = operation

    def forward(self, x):
        return self.operation(self.body(self.stem(x)))


def decides(x):
    return x if x.sum() > 0 else -x


REFUSED = {
    "expected a BatchNorm with running statistics": nn.BatchNorm2d(4, track_running_stats=False),
    r"test_export.py:\d+: expected an operator .*, found aten.topk.default": lambda x: x.topk(2).values,
    r"Unusual, test_export.py:\d+: expected a model that torch.export can trace": decides,
    "expected whole parts of a division by constants above 0": lambda x: x % (x + 9),
    "expected indices that are constants": lambda x: x[:, :, x[:, 0, :, 0].argmax(1)],
    "expected operations on each sample by itself, found a max over the batch": lambda x: x - x.max(),
    "expected the batch as the first dimension": lambda x: x.permute(1, 0, 2, 3),
    r"expected the batch as the first dimension, found a result shaped .72, 9.": lambda x: x.reshape(-1, 9),
    "expected operations on each sample by itself": lambda x: x.softmax(0),
    "expected constants that are the same for all samples": lambda x: (
        x + torch.arange(2.0)[:, None, None, None]
    ),
    "expected values that the file holds": lambda x: sum(F.adaptive_max_pool2d(x, 1, return_indices=True)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_the_file_cannot_hold_is_named(message, tmp_path):
    model = Unusual(REFUSED[message])
    binarize_(model.body, Binarization(latent="none"))
    with pytest.raises(InputError, match=message):
        export(model.eval(), tmp_path / "net.safetensors", images(2, (9, 9)))
    assert list(tmp_path.iterdir()) == []


def test_a_model_in_training_mode_is_refused(tmp_path):
    model = trained_like(mlp())
    model[2].train()
    with pytest.raises(InputError, match="Sequential, module 2: expected evaluation mode"):
        export(model, tmp_path / "net.safetensors", images(2, (4, 4)))


def test_a_scripted_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a module in Python, found a ScriptModule; pass the mod"):
        export(torch.jit.script(nn.Linear(4, 4).eval()), tmp_path / "x.safetensors", torch.randn(2, 4))


def test_a_model_that_was_never_made_binary_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"Sequential: expected a model with binary layers.*binarize_\(model\)"
    ):
        export(mlp().eval(), tmp_path / "net.safetensors", images(2, (4, 4)))


class Squared(BinaryLayer):
    """A binary layer of the user's own."""

    def apply_weight(self, x, B):
        return F.linear(x, B @ B)

    def magnitude(self, x):
        return x.abs()


def test_a_binary_layer_that_the_file_has_no_operation_for(tmp_path):
    layer = Squared.__new__(Squared)
    layer._assemble(Dense.from_weight(torch.randn(4, 4)), None, None)
    with pytest.raises(InputError, match=r"layer 0: .* found Squared; keep this layer real"):
        export(nn.Sequential(layer, nn.Linear(4, 2)).eval(), tmp_path / "net.safetensors", torch.randn(2, 4))


def test_the_report_counts_bits(tmp_path):
    model = bitfactor.models.ResNet((1,), (64,), 10, 3, "cifar")
    as_float = 4 * sum(parameter.numel() for parameter in model.parameters())
    report = export(trained_like(model, "holistic"), tmp_path / "net.safetensors", images())
    assert report.float_bytes == as_float
    assert report.file_bytes == (tmp_path / "net.safetensors").stat().st_size
    assert [layer.ratio for layer in report.layers if layer.kind == "binary"] == [32, 32]
    assert "layer1.0.conv1" in str(report)
