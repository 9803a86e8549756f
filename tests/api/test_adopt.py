"""Layers of others' code become ours with their signs, and go on from there."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.nn import BinaryConv2d, BinaryLayer, BinaryLinear


class Convolution(nn.Conv2d):
    """Weights alone are signed here: the input comes as signs."""

    def forward(self, x):
        alpha = self.weight.abs().mean((1, 2, 3), keepdim=True).detach()
        signs = alpha * torch.sign(self.weight)
        weight = signs.detach() - self.weight.detach() + self.weight
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class Whole(nn.Conv2d):
    """Centres its weight, signs its input, and scales behind."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha = nn.Parameter(torch.rand(self.out_channels, 1, 1))

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(torch.sign(x), torch.sign(weight), self.bias, self.stride, self.padding) * self.alpha


class Linear(nn.Linear):
    def forward(self, x):
        return F.linear((x > 0).float(), self.weight.sign(), self.bias)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.first = Convolution(16, 16, 3, padding=1, bias=False)
        self.second = Whole(16, 24, 3, stride=2, padding=1)
        self.third = Linear(24, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.norm(self.stem(x))
        x = self.first(torch.sign(x)) + x
        return self.head(self.third(self.second(x).mean((2, 3))))


@pytest.fixture
def example():
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_the_network_computes_the_same_and_learns(example):
    torch.manual_seed(0)
    model = Network().eval()
    latent, expected = model.first.weight.detach().clone(), model(example).detach()
    adopted = bitfactor.adopt_(model, example)
    assert [(one.name, one.replaced) for one in adopted.layers] == [
        ("first", True),
        ("second", True),
        ("third", True),
    ]
    assert isinstance(model.first, BinaryConv2d)
    assert isinstance(model.third, BinaryLinear)
    torch.testing.assert_close(model.first.latent(), latent)
    torch.testing.assert_close(model(example).detach(), expected, rtol=1e-4, atol=1e-4)
    model.train()(example).square().mean().backward()
    layers = [module for module in model.modules() if isinstance(module, BinaryLayer)]
    assert all(p.grad is not None for layer in layers for p in layer.parameters())


class Listed(Network):
    """Calls its layers by a list and a dict."""

    def __init__(self):
        super().__init__()
        self.steps = [self.first, {"second": self.second}]

    def forward(self, x):
        x = self.norm(self.stem(x))
        first, others = self.steps
        x = first(torch.sign(x)) + x
        return self.head(self.third(others["second"](x).mean((2, 3))))


def test_what_forward_calls_is_what_is_replaced(example):
    model = Listed().eval()
    expected = model(example).detach()
    bitfactor.adopt_(model, example)
    assert isinstance(model.steps[0], BinaryConv2d)
    assert model.steps[0] is model.first
    torch.testing.assert_close(model(example).detach(), expected, rtol=1e-4, atol=1e-4)
    model(example).sum().backward()
    assert all(p.grad is not None for p in model.second.parameters())


def test_it_is_exported_as_before(example, tmp_path):
    model = Network().eval()
    before = bitfactor.export(model, tmp_path / "before.safetensors", example)
    bitfactor.adopt_(model, example)
    after = bitfactor.export(model, tmp_path / "after.safetensors", example)
    assert [layer.kind for layer in after.layers] == [layer.kind for layer in before.layers]


def test_an_old_optimizer_is_told(example):
    model = Network().eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    bitfactor.adopt_(model, example)
    with pytest.raises(InputError, match="that are gone from it"):
        optimizer.step()


class Block(nn.Module):
    """More than a layer: two convolutions by the functional interface."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.randn(3, 3, 3, 3)), nn.Parameter(torch.randn(3, 3, 3, 3))

    def forward(self, x):
        x = F.conv2d(torch.sign(x - 0.1), self.one.sign())
        return F.conv2d(torch.sign(x + 0.5), self.two.sign())


def test_a_module_that_does_more_is_left_and_named(example):
    model = nn.Sequential(Block()).eval()
    adopted = bitfactor.adopt_(model, example)
    assert {(one.name, one.replaced, one.why) for one in adopted.layers} == {
        ("0", False, "its module does more than this layer")
    }


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Conv2d(3, 3, 3)), "expected a model with binary layers, found none; 0: its input"),
        (nn.Sequential(BinaryConv2d(3, 3, 3)), "found layers of bitfactor.nn"),
    ],
)
def test_a_network_without_such_layers_is_refused(model, message, example):
    with pytest.raises(InputError, match=message):
        bitfactor.adopt_(model.eval(), example)
