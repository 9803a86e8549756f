"""The first module whose output is no number is named."""

import torch
from torch import nn

from bitfactor.training.recipe import bad_parameter, origin


def network():
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))


def test_the_first_module_whose_output_is_no_number():
    model = network()
    model[1].insert(1, nn.Threshold(0, float("inf")))  # inf where its input is 0
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1)
    assert origin(model, torch.ones(2, 3)) == "the output of 1.1 (Threshold)"
    assert not any(module._forward_hooks for module in model.modules())


def test_inputs_and_parameters_come_before():
    model = network()
    assert origin(model, torch.full((2, 3), float("nan"))) == "the inputs"
    assert origin(model, torch.ones(2, 3)) == "the loss"
    assert bad_parameter(model) is None
    with torch.no_grad():
        model[1][1].weight[0, 0] = float("inf")
    assert origin(model, torch.ones(2, 3)) == "the parameter 1.1.weight"
