"""ResNets have the known sizes, the paper's groups and binary inputs of both signs."""

import pytest
import torch

from bitfactor.binarization import Binarization, binarize_, summary
from bitfactor.models import ResNet, resnet18, resnet34
from bitfactor.nn import BinaryConv2d


@pytest.mark.parametrize(("build", "parameters", "macs"), [(resnet18, 11.69, 1.81), (resnet34, 21.80, 3.66)])
def test_size_is_the_known_one(build, parameters, macs):
    figures = summary(build(), (1, 3, 224, 224))
    assert figures.float_bytes / 4e6 == pytest.approx(parameters, abs=0.01)
    assert figures.real_macs / 1e9 == pytest.approx(macs, abs=0.01)


def test_the_groups_of_the_paper():
    assert resnet18().holistic_groups() == {
        f"layer{i}": [f"layer{i}.0.conv2", f"layer{i}.1.conv1", f"layer{i}.1.conv2"] for i in (2, 3, 4)
    }


def test_shortcuts_stay_real():
    assert resnet18().keep_real() == [f"layer{i}.0.downsample.1" for i in (2, 3, 4)]


def test_cifar_stem_keeps_the_size():
    model = resnet18(num_classes=10, stem="cifar").eval()
    assert model.layer1(model.conv1(torch.zeros(1, 3, 32, 32))).shape == (1, 64, 32, 32)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_halving_stem_halves_it():
    model = ResNet((1,), (8,), 10, stem="halving")
    assert model.bn1(model.conv1(torch.zeros(2, 3, 32, 32))).shape == (2, 8, 16, 16)


@pytest.mark.parametrize("activation", ["relu", "prelu", "none"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_shortcut_around_each_convolution(activation, binary):
    """With branches of zero, each block passes on what its shortcut gives, and so does each half of it."""
    model = ResNet((1, 1), (8, 16), 10, 3, "cifar", activation, "conv", binary_shortcuts=binary).eval()
    block, x = model.layer1[0], torch.randn(2, 8, 4, 4)
    with torch.no_grad():
        block.conv2.weight.zero_()
        torch.testing.assert_close(block(x), x + block.act1(block.conv1(block.bn1(x))))
    assert model.keep_real() == ([] if binary else ["layer2.0.downsample.1"])


def test_gates_scale_what_a_convolution_gives_by_what_it_gets():
    model = ResNet((1, 1), (8, 16), 10, 3, "cifar", "none", "conv", gates=True).eval()
    block, x = model.layer1[0], torch.randn(2, 8, 4, 4)
    with torch.no_grad():
        block.conv2.weight.zero_()
        y, pooled = block.bn1(x), block.bn1(x).mean((2, 3), keepdim=True)
        gate = torch.sigmoid(block.gate1.se[3](block.gate1.se[1](pooled).relu()))
        torch.testing.assert_close(block(x), x + gate * block.conv1(y))
    gates = [f"layer{i}.0.gate{j}" for i in (1, 2) for j in (1, 2)]
    assert sorted(model.keep_real()) == sorted([*gates, "layer2.0.downsample.1"])


def test_binary_shortcuts_see_inputs_of_both_signs():
    """Sums of ReLUs are positive, and their signs all the same, if no BatchNorm comes before."""
    model = ResNet((1, 1), (8, 16), 10, binary_shortcuts=True)
    binarize_(model, Binarization(latent="none"))
    seen = []
    model.get_submodule("layer2.0.downsample.2").register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0])
    )
    model(torch.randn(4, 3, 32, 32))
    assert isinstance(model.get_submodule("layer2.0.downsample.2"), BinaryConv2d)
    assert 0.2 < (seen[0] > 0).float().mean() < 0.8
