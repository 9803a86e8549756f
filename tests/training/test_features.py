"""A teacher of features: attention transfer at the end of each stage."""

import pytest
import torch
from tests.training.toy import toy_recipe
from torch import nn
from torch.nn import functional as F

from bitfactor.common.errors import InputError
from bitfactor.models import reactnet18, reactnet_a, resnet18
from bitfactor.training import Optimization, Teacher, build
from bitfactor.training.features import AttentionTransfer, attention
from bitfactor.training.recipe import prepare
from bitfactor.training.step import Stepper

X = torch.zeros(1, 3, 64, 64)


def conv(before, after, stride=2):
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), nn.ReLU())


class Backbone(nn.Module):
    """One module holds all stages, as in MobileNets; the first part of a stage has large maps."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            conv(3, 4),
            nn.Sequential(conv(4, 6), conv(6, 4, 1)),
            nn.Sequential(nn.Sequential(conv(4, 4, 1), conv(4, 8))),
        )

    def forward(self, x):
        return self.features(x).mean((2, 3))


class Flat(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def stage(network, x=X, layers=()):
    return AttentionTransfer(network.eval(), network, x, layers).pairs


def test_attention_is_where_maps_are_large():
    maps = torch.zeros(2, 3, 2, 2)
    maps[0, 0, 0, 0], maps[0, 1, 0, 0], maps[0, 2, 1, 1] = 2.0, 2.0, -1.0
    expected = torch.tensor([8.0, 0, 0, 1]) / 65**0.5
    torch.testing.assert_close(attention(maps), torch.stack([expected, torch.zeros(4)]))


@pytest.mark.parametrize(
    ("network", "stages"),
    [
        (lambda: resnet18(10), [f"layer{i}" for i in (1, 2, 3, 4)]),
        (lambda: reactnet18(10), [f"layer{i}" for i in (1, 2, 3, 4)]),
        (lambda: reactnet_a(10), ["feature.1", "feature.3", "feature.5", "feature.11", "feature.13"]),
        (Backbone, ["features.0", "features.1", "features.2"]),
    ],
)
def test_stages_are_the_last_parts_of_each_size(network, stages):
    assert stage(network()) == [(name, name) for name in stages]


def test_layers_can_be_named():
    layers = ["layer1.0", "layer2=layer2.0"]
    assert stage(resnet18(10), layers=layers) == [("layer1.0", "layer1.0"), ("layer2", "layer2.0")]
    assert stage(Flat(), layers=["1"]) == [("1", "1")]


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (["layer9"], "--feature-layers layer9: expected a module of the network .*; did you mean layer4 or"),
        (
            ["=fc"],
            "a module of the network that gives .*, found ''; known are: layer1, layer2, layer3, layer4",
        ),
        (
            ["layer1=fc"],
            "--feature-layers layer1=fc: expected a module of the teacher that gives maps .*'fc'",
        ),
        (
            ["layer1=layer2"],
            "expected maps of 16x16, as layer1 has, found 8x8 in the teacher's layer2",
        ),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, said):
    with pytest.raises(InputError, match=said):
        stage(resnet18(10), layers=layers)


def test_networks_without_equal_maps_are_refused():
    with pytest.raises(
        InputError, match=r"same size .* found 16x16, 8x8, 4x4, 2x2 and none; .*--feature-layers"
    ):
        AttentionTransfer(resnet18(10).eval(), Flat(), X)


def stepper_of(network=None, **options):
    """Return a stepper for the toy, taught features by a full-precision one, or by another network."""
    options = {"teacher": "runs/float", "feature_weight": 2.0, "batch_norm": "frozen"} | options
    recipe = toy_recipe(**options)
    teacher = Teacher(build(toy_recipe(real=True, seed=3)) if network is None else network)
    return Stepper(prepare(recipe, None), teacher)


def maps_of(network, x):
    """Return the ends of both stages of the toy's ResNet."""
    first = network.layer1(network.bn1(network.conv1(x)))
    return first, network.layer2(first)


@pytest.mark.parametrize("parts", [1, 2])
def test_the_loss_is_that_of_the_labels_and_of_both_stages(toy, parts):
    inputs, target = toy.images(0, 16)
    stepper = stepper_of(teacher_weight=0.0, ema=0.9, grad_accum_steps=parts)
    network, teacher = stepper.network.eval(), stepper.teacher.network
    with torch.no_grad():
        expected = F.cross_entropy(network(inputs), target)
        for ours, theirs in zip(maps_of(network, inputs), maps_of(teacher, inputs), strict=True):
            expected += 2.0 * (attention(ours) - attention(theirs)).square().sum(1).mean()
    assert float(stepper.loss_of(inputs, target, 0)) == pytest.approx(float(expected), rel=1e-5)
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert not stepper.evaluated.layer1._forward_hooks
    assert stepper.notes == ["features are learned too: layer1 from layer1 (8x8), layer2 from layer2 (4x4)"]


def test_maps_become_large_where_the_teachers_are(toy):
    stepper = stepper_of(feature_layers=("layer1",), teacher_weight=0.0, epochs=100)
    inputs, target = toy.images(0, 16)
    distances = []
    for step in range(30):
        stepper.loss_of(inputs, target, step)
        distances.append(float(stepper.features.distance().detach()))
        stepper.update()
    assert distances[-1] < 0.7 * distances[0]


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {"channels_last": True}])
def test_features_change_little_with_precision_and_layout(options, toy):
    batch = toy.images(0, 16)
    plain, other = (float(stepper_of(**chosen).loss_of(*batch, 0)) for chosen in ({}, options))
    assert other == pytest.approx(plain, rel=0.02)


@pytest.mark.slow
def test_a_compiled_network_learns_the_same_features(toy):
    plain, compiled = (stepper_of(compile=flag, feature_weight=100.0) for flag in (False, True))
    for step in range(2):
        losses = [float(one.loss_of(*toy.images(step, 16), step)) for one in (plain, compiled)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        plain.update()
        compiled.update()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"feature_weight": 1.0}, "--feature-weight: expected a --teacher, found 1.0"),
        ({"teacher": "a", "feature_weight": -1.0}, "--feature-weight: expected 0 or more"),
        ({"teacher": "a", "feature_layers": ("b",)}, "--feature-layers: expected a --feature-weight"),
    ],
)
def test_options_without_effect_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        Optimization(epochs=1, batch_size=1, learning_rate=1.0, **options)
