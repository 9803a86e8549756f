"""Checkpoints in the layouts of others, made here: networks written anew, with their names."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bitfactor import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.models import ResNet
from bitfactor.models.pretrained import load_weights

WIDTHS = (64, 128)


def ours(activation="relu"):
    return ResNet(blocks=(1, 1), widths=WIDTHS, num_classes=7, activation=activation)


def conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def as_torchvision_names_them():
    """stem; layer1.0 of 64 channels; layer2.0 from 64 to 128, its shortcut a convolution and a BatchNorm."""
    modules = {"conv1": nn.Conv2d(3, 64, 7, 2, 3, bias=False), "bn1": nn.BatchNorm2d(64)}
    for name, inputs, outputs in (("layer1", 64, 64), ("layer2", 64, 128)):
        block = nn.Module()
        block.conv1, block.bn1 = conv(inputs, outputs, 3), nn.BatchNorm2d(outputs)
        block.conv2, block.bn2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        if inputs != outputs:
            block.downsample = nn.Sequential(conv(inputs, outputs, 1, 2), nn.BatchNorm2d(outputs))
        modules[name] = nn.Sequential(block)
    modules["fc"] = nn.Linear(128, 7)
    return nn.ModuleDict(modules).state_dict()


def test_a_float_network_in_the_names_of_torchvision():
    torch.manual_seed(0)
    state, model = as_torchvision_names_them(), ours()
    loaded = load_weights(model, state)
    torch.testing.assert_close(model.layer2[0].conv2.weight, state["layer2.0.conv2.weight"])
    torch.testing.assert_close(model.layer2[0].downsample[1].weight, state["layer2.0.downsample.0.weight"])
    torch.testing.assert_close(model.layer2[0].downsample[2].weight, state["layer2.0.downsample.1.weight"])
    torch.testing.assert_close(model.fc.bias, state["fc.bias"])
    assert {name.rpartition(".")[0] for name in loaded.fresh} == {
        f"layer{i}.0.bn{j}" for i in (1, 2) for j in (1, 2)
    }
    assert all(".behind.bn" in name for name in loaded.unused)
    binarize_(model, Binarization(latent="tucker"))
    torch.testing.assert_close(
        model.layer2[0].conv2.latent(), state["layer2.0.conv2.weight"], rtol=1e-4, atol=1e-5
    )


class BinaryBlock(nn.Module):
    """As the binary networks' own code computes it: sign, convolution with signs, alpha, PReLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1, self.conv2 = conv(inputs, outputs, 3, outputs // inputs), conv(outputs, outputs, 3)
        self.act1, self.act2 = nn.PReLU(outputs), nn.PReLU(outputs)
        for layer in (self.conv1, self.conv2):
            layer.activation_post_process = nn.Module()
            layer.activation_post_process.alpha = nn.Parameter(torch.randn(1, outputs, 1, 1))
        self.downsample = (
            nn.Sequential(
                nn.AvgPool2d(2, 2, ceil_mode=True), conv(inputs, outputs, 1), nn.BatchNorm2d(outputs)
            )
            if inputs != outputs
            else nn.Identity()
        )

    def forward(self, x):
        y = x
        for bn, layer, act in ((self.bn1, self.conv1, self.act1), (self.bn2, self.conv2, self.act2)):
            y = F.conv2d(bn(y).sign(), layer.weight.sign(), None, layer.stride, 1)
            y = act(y * layer.activation_post_process.alpha)
        return y + self.downsample(x)


class BinaryNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layer1, self.layer2 = nn.Sequential(BinaryBlock(64, 64)), nn.Sequential(BinaryBlock(64, 128))
        self.fc = nn.Linear(128, 7)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


def test_a_binary_network_gives_the_same_outputs():
    torch.manual_seed(0)
    theirs, x = BinaryNetwork(), torch.randn(2, 3, 64, 64)
    theirs(x)
    model = ours(activation="prelu")
    binarize_(model, Binarization(latent="none", scale="learned"))
    checkpoint = {f"module._orig_mod.{name}": tensor for name, tensor in theirs.state_dict().items()}
    loaded = load_weights(model, {"epoch": 3, "state_dict": checkpoint})
    assert (loaded.fresh, loaded.unused) == ((), ())
    assert str(loaded) == f"{len(loaded.taken)} tensors taken over"
    torch.testing.assert_close(model.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)


def test_another_number_of_classes():
    state = as_torchvision_names_them()
    state["fc.weight"], state["fc.bias"] = torch.zeros(1000, 128), torch.zeros(1000)
    with pytest.raises(InputError, match=r"fc.weight: expected shape \(7, 128\), found \(1000, 128\)"):
        load_weights(ours(), state)
    assert "fc.bias" in load_weights(ours(), state, skip=["fc"]).unused


def test_a_checkpoint_that_does_not_fit_changes_nothing():
    model, state = ours(), as_torchvision_names_them()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wrong = {
        r"a tensor for conv1.weight, found none": {"encoder.0": torch.zeros(3)},
        r"a tensor for conv1.weight": {"epoch": 3},
        r"expected a mapping from names to tensors, found list": [state],
        r"expected tensors that the model has, found layer3.0.conv1.weight and 0 others": {
            **state,
            "layer3.0.conv1.weight": torch.zeros(1),
        },
        r"fc.weight: expected shape \(7, 128\)": {**state, "fc.weight": torch.zeros(9, 128)},
    }
    for message, checkpoint in wrong.items():
        with pytest.raises(InputError, match=message):
            load_weights(model, checkpoint)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_module_to_skip_that_is_not_there():
    with pytest.raises(InputError, match="skip: expected names of modules, found 'fcc'; did you mean fc"):
        load_weights(ours(), as_torchvision_names_them(), skip=["fcc"])


def test_a_factorised_network_is_told_to_load_before():
    model = ours()
    binarize_(model, Binarization(latent="tucker"))
    with pytest.raises(InputError, match="load before binarize_"):
        load_weights(model, as_torchvision_names_them())
