"""Which layers to turn binary: what each costs alone, and networks between none and all of them."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bitfactor
from bitfactor.api.assign import Mix, _worth
from bitfactor.common.errors import InputError
from bitfactor.nn.layer import BinaryLayer


@pytest.fixture(scope="module")
def trained():
    """A network with an easy task: which of four quarters of the image is bright."""
    torch.manual_seed(0)
    model = bitfactor.models.ResNet(blocks=(1, 1), widths=(8, 16), num_classes=4, stem="cifar")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5
    labels = torch.arange(96) % 4
    images = torch.randn(96, 3, 16, 16)
    for image, label in zip(images, labels, strict=True):
        y, x = divmod(int(label), 2)
        image[:, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8] += 1.5
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(15):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval(), [(images[:64], labels[:64]), (images[64:], labels[64:])]


@pytest.fixture(scope="module")
def found(trained):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # its files are its own: nobody can give them labels
        return bitfactor.assign(*trained, runs=5, most_mixes=3)


def test_it_orders_all_layers_and_measures_networks_between(trained, found):
    model, batches = trained
    names = {"layer1.0.conv1", "layer1.0.conv2", "layer2.0.conv1", "layer2.0.conv2"}
    assert {layer.name for layer in found.layers} == names
    assert [len(mix.binary) for mix in found.mixes] == [0, 2, 4]
    order = [layer.name for layer in found.layers]
    for mix in found.mixes:
        assert list(mix.binary) == order[: len(mix.binary)]
        assert {*mix.binary, *mix.keep_real} == names
        assert mix.milliseconds > 0
    with torch.no_grad():
        right = sum(F.cross_entropy(model(x), y) * len(x) for x, y in batches) / 96
    assert found.mixes[0].loss == pytest.approx(float(right))
    assert right < 0.5 < found.mixes[-1].loss
    assert found.mixes[-1].bytes < 0.6 * found.mixes[0].bytes
    assert "saved ms" in str(found)


def test_a_layer_that_costs_nothing_is_named_first():
    assert sorted([(0.5, 1.0), (0.1, 1.0), (-0.2, 1.0), (0.1, -1.0)], key=lambda pair: _worth(*pair)) == [
        (-0.2, 1.0),
        (0.1, 1.0),
        (0.5, 1.0),
        (0.1, -1.0),
    ]


def test_its_front_has_what_nothing_beats(found):
    best = min(found.mixes, key=lambda mix: (mix.loss, mix.milliseconds))
    fastest = min(found.mixes, key=lambda mix: (mix.milliseconds, mix.loss))
    assert {best, fastest} <= {*found.front}
    beaten = Mix((), (), best.loss + 1, best.milliseconds + 1, 1)
    assert beaten not in type(found)(found.layers, (*found.mixes, beaten), "", "low").front


def test_the_model_stays_as_it_is_and_a_mix_turns_it_binary(trained, found):
    model = copy.deepcopy(trained[0])
    mix = found.mixes[1]
    plan = bitfactor.binarize_(model, latent="none", keep_real=mix.keep_real)
    assert {layer.name for layer in plan.binary} == {*mix.binary}
    with torch.no_grad():
        loss = sum(F.cross_entropy(trained[0](x), y) * len(x) for x, y in trained[1]) / 96
    assert found.mixes[0].loss == pytest.approx(float(loss))
    assert not any(isinstance(module, BinaryLayer) for module in trained[0].modules())


def test_what_does_not_fit(trained):
    model, batches = trained
    with pytest.raises(InputError, match="batches: expected one or more"):
        bitfactor.assign(model, [])
    images, labels = batches[0]
    for targets in (labels[:3], labels.float(), labels + 9):
        with pytest.raises(InputError, match="batches: expected inputs for the model, and targets"):
            bitfactor.assign(model, [(images, targets)])
    with pytest.raises(InputError, match="batches: expected two samples or more in the first, found 1"):
        bitfactor.assign(model, [(images[:1], labels[:1])])
    with pytest.raises(InputError, match="runs: expected 1 or more, found 0"):
        bitfactor.assign(model, batches, runs=0)
    with pytest.raises(InputError, match="most_mixes: expected 2 or more"):
        bitfactor.assign(model, batches, most_mixes=1)
    with pytest.raises(InputError, match="a layer that can turn binary"):
        bitfactor.assign(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), batches)
