"""Models of a user's own: the file does what torch does, or there is one clear error."""

import importlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bitfactor
from bitfactor.convert import Binarization, binarize_
from bitfactor.errors import InputError
from bitfactor.exporter import export
from bitfactor.format import load
from bitfactor.nn import BinaryLayer, LearnedScale
from bitfactor.runtime import Session, instruction_sets, reference


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


MODELS = {"grouped": Grouped, "two heads": TwoHeads, "mlp": mlp}


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


SIZES = {"grouped": (10, 7), "two heads": (10, 7), "mlp": (4, 4)}


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


@pytest.mark.parametrize("stacks", [1, 2])
def test_an_hourglass(stacks, tmp_path):
    torch.manual_seed(0)
    model = bitfactor.models.Hourglass(joints=5, stacks=stacks, channels=16, depth=2)
    binarize_(model, Binarization(latent="holistic", scale="learned"))
    x = torch.randn(4, 3, 64, 32)
    model.train()(x)
    report = export(model.eval(), tmp_path / "net.safetensors", x[:2])
    assert report.max_difference < 1e-4
    assert Session(tmp_path / "net.safetensors")(x.numpy()).shape == (4, 5, 16, 8)


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
    module = importlib.import_module("bitfactor.exporter.lower")
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
    module = importlib.import_module("bitfactor.exporter.thresholds")
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
    monkeypatch.setattr(reference, "run", lambda graph, x: (np.zeros((1, 4), np.float32),))
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
    "expected upsampling by whole numbers": nn.Upsample(scale_factor=1.5),
    "expected upsampling by whole numbers, found .0.4": nn.Upsample(size=(4, 4)),
    r"operation, test_export.py:\d+: expected operators among .*, found aten.tanh.default": nn.Tanh(),
    "Unusual: expected a model that torch.export can trace": decides,
    "expected max pooling without dilation or ceil_mode": nn.MaxPool2d(3, ceil_mode=True),
    "expected average pooling without ceil_mode or divisor": nn.AvgPool2d(3, divisor_override=2),
    r"an adaptive pool to a size that divides \(9, 9\), found \(2, 2\)": nn.AdaptiveAvgPool2d(2),
    "expected softmax over dimension 1": nn.Softmax(2),
    "expected two inputs of one shape": lambda x: x + x.mean((2, 3), keepdim=True),
    "expected a constant per channel": lambda x: x + torch.arange(9),
    "expected a division by a constant": lambda x: x / (x + 1),
    "expected a mean over all pixels": lambda x: x.mean(2),
    "expected dimension 0, the batch, to stay first": lambda x: x.permute(1, 0, 2, 3),
    "expected operations that keep the batch as the first dimension": lambda x: x.reshape(-1, 9),
    "expected operations on each sample by itself": lambda x: x.softmax(0),
    "expected at least one number per sample": lambda x: x.flatten(1)[:, 0],
    r"operation, .*: expected an input shaped \(F,\)": nn.Linear(9, 2),
    "aten.add.Tensor in a form that the file can hold": lambda x: x + torch.ones(2, 4, 9, 9),
    "expected values that the file holds": lambda x: sum(F.adaptive_max_pool2d(x, 1, return_indices=True)),
    "expected a second input of the first one's shape": lambda x: x * x[:, :, :1],
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


def test_a_model_that_was_never_made_binary_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"Sequential: expected a model with binary layers.*binarize_\(model\)"
    ):
        export(mlp().eval(), tmp_path / "net.safetensors", images(2, (4, 4)))


def test_layers_that_are_not_binary_yet_are_named(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 1))
    binarize_(model, Binarization(latent="none", weights=False))
    model.eval()
    with pytest.raises(InputError, match=r"^layer 1: expected a binary linear, 1-d or 2-d layer"):
        export(model, tmp_path / "net.safetensors", images())


def test_the_report_counts_bits(tmp_path):
    model = bitfactor.models.ResNet((1,), (64,), 10, 3, "cifar")
    as_float = 4 * sum(parameter.numel() for parameter in model.parameters())
    report = export(trained_like(model, "holistic"), tmp_path / "net.safetensors", images())
    assert report.float_bytes == as_float
    assert report.file_bytes == (tmp_path / "net.safetensors").stat().st_size
    assert [layer.ratio for layer in report.layers if layer.kind == "binary"] == [32, 32]
    assert "layer1.0.conv1" in str(report)
