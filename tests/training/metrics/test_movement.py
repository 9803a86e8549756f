"""What a step did to W, against a weight and a step whose movement is known by hand."""

import math

import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.decompositions import once
from bitfactor.nn import BinaryConv2d
from bitfactor.training.metrics import Movement


def moved(latent, rate, *, parts=1):
    """Do a step of plain gradient descent -> the movement of the only layer, W before and after, dL/dW."""
    torch.manual_seed(0)
    layer = BinaryConv2d(4, 6, 3, latent=latent, scale="none")
    model = nn.Sequential(layer)
    inputs, direction = torch.randn(2, 4, 5, 5), torch.randn(2, 6, 3, 3)
    movement = Movement(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    before = layer.latent().detach().clone()
    for _ in range(parts):
        (model(inputs) * direction).sum().div(parts).backward()
    gradient = layer.latent.weight.grad.clone() if latent == "none" else None
    (found,) = movement(optimizer.step, rate).values()
    return found, before, layer.latent().detach(), gradient


@pytest.mark.parametrize("parts", [1, 2])
def test_a_free_weight_takes_the_steepest_descent(parts):
    found, before, after, gradient = moved("none", 0.01, parts=parts)
    assert found.descent == pytest.approx(1, abs=1e-5)
    assert found.gradient == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-5)
    assert found.change == pytest.approx(found.gradient, rel=1e-4)
    assert found.flipped == pytest.approx(float(((before > 0) != (after > 0)).float().mean()))
    assert 0 < found.flipped < 1
    assert found.condition == 1
    assert found.spread == pytest.approx(float(after.std(correction=0)))
    assert found.outside == float((after.abs() > 1).float().mean())


def test_flips_are_those_of_the_transformed_weight():
    torch.manual_seed(0)
    layer = BinaryConv2d(4, 6, 3, latent="none", weight_transform="centred")
    model = nn.Sequential(layer)
    movement, before = Movement(model), layer.real_filters() > 0

    def update():
        with torch.no_grad():  # by a constant of each filter: what is signed stays in part
            layer.latent.weight[0, 0, 0, 0] += 9

    (found,) = movement(update, 0.1).values()
    assert found.flipped == pytest.approx(float(((layer.real_filters() > 0) != before).float().mean()))
    assert found.flipped > 2 / 216


def test_factors_turn_and_stretch_it():
    found, before, after, _ = moved("tucker", 0.01)
    free, _, _, _ = moved("none", 0.01)
    assert found.gradient > 0
    assert found.change == pytest.approx(float((after - before).square().mean().sqrt()) / 0.01, rel=1e-4)
    assert 0 < found.descent < 0.999
    assert found.change > free.change
    assert math.isfinite(found.condition)
    assert found.condition >= 1


def test_layers_that_share_a_bank_are_told_apart():
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4)))
    bitfactor.binarize_(model, latent="holistic", groups="auto", real_ends=False)
    movement = Movement(model)
    model(torch.randn(1, 8, 6, 6)).square().sum().backward()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = movement(optimizer.step, 1e-3)
    assert list(found) == ["0", "1", "2", "3"]
    assert len({one.gradient for one in found.values()}) == 4
    assert not any(layer.latent._forward_hooks for layer in model)


def test_a_layer_that_is_called_twice_counts_once():
    layer = BinaryConv2d(4, 4, 3, padding=1, latent="none")
    model = nn.Sequential(layer, layer)
    movement = Movement(model)
    with once(model):
        model(torch.randn(2, 4, 5, 5)).square().sum().backward()
    gradient = layer.latent.weight.grad.clone()
    (found,) = movement(lambda: None, 0.1).values()
    assert found.gradient == pytest.approx(float(gradient.square().mean().sqrt()), rel=1e-5)


def test_without_a_gradient_nothing_descends():
    model = nn.Sequential(BinaryConv2d(4, 4, 3))
    (found,) = Movement(model)(lambda: None, 0.1).values()
    assert (found.descent, found.gradient, found.change, found.flipped) == (0, 0, 0, 0)
