"""Estimators, scales and transforms of one's own: used as the built-in ones, refused in one line."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bitfactor
from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.decompositions import LAYERWISE, check_latent
from bitfactor.nn import (
    AnalyticScale,
    BinaryConv2d,
    BinaryLinear,
    LearnedScale,
    Scale,
    SignActivation,
    analytic_alpha,
    check_estimator,
    check_scale,
    register_estimator,
    register_scale,
    register_weight_transform,
    sign,
)
from bitfactor.nn.layer import BinaryLayer
from bitfactor.nn.scale import PER_CHANNEL
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS, polynomial
from bitfactor.nn.transform import WEIGHT_TRANSFORMS

EXAMPLES = Path(__file__).parents[2] / "examples"
_TABLES = (ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS, PER_CHANNEL, WEIGHT_TRANSFORMS, LAYERWISE)


@pytest.fixture(autouse=True)
def _as_before():
    """Leave the tables as they were."""
    before = [dict(table) for table in _TABLES]
    yield
    for table, entries in zip(_TABLES, before, strict=True):
        table.clear()
        table.update(entries)


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(8 * 36, 4),
    )


OPTIONS = [
    {"activation_estimator": "reste"},
    {"activation_estimator": "threshold"},
    {"weight_estimator": "staircase"},
    {"weight_estimator": "threshold"},
    {"weight_transform": "halved", "latent": "tucker"},
    {"weight_transform": "halved", "scale": "rms_scale", "latent": "window"},
    {"scale": "rms_scale", "activations": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_examples_train_and_run_from_a_file(options, tmp_path) -> None:
    example("own_estimators")
    model, x = net(), torch.randn(4, 3, 6, 6)
    plan = binarize_(model, **{"latent": "none", **options})
    named = {name: value for name, value in options.items() if name != "activations"}
    assert all(getattr(plan.binary[0], name) == value for name, value in named.items())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True) if a.dim() != 1)
    bitfactor.export(model.eval(), tmp_path / "net.safetensors", x)
    with torch.no_grad():
        expected = model(x).numpy()
    found = bitfactor.Session(tmp_path / "net.safetensors")(x.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["reste", "staircase", "threshold"])
def test_estimators_of_the_examples_keep_the_contract(name) -> None:
    module = example("own_estimators")
    value = module.Threshold if name == "threshold" else getattr(module, name)
    assert check_estimator(value) == []
    layer = BinaryConv2d(8, 4, 3, activation_estimator=value, weight_estimator=value, latent="none")
    x = torch.randn(2, 8, 5, 5)
    torch.testing.assert_close(layer(x).double(), layer.double()(x.double()), rtol=1e-4, atol=1e-4)


def test_a_scale_of_the_filters_alone_needs_no_init() -> None:
    assert check_scale(Largest) == []
    layer = BinaryLinear(6, 4, scale=Largest)
    torch.testing.assert_close(layer.alpha(), layer.latent().abs().amax(1))


@pytest.mark.parametrize("check", [check_latent, check_estimator, check_scale])
def test_a_contract_is_of_an_object(check) -> None:
    with pytest.raises(InputError, match="a function, found 'learned'"):
        check("learned")


def test_the_decomposition_of_the_examples_keeps_the_contract() -> None:
    assert check_latent(example("own_decomposition").Gated) == []


def test_the_scale_of_the_examples_keeps_the_contract() -> None:
    assert check_scale(example("own_estimators").RmsScale) == []


def steep(x):
    return 1 / (1 + (3 * x).square())


def test_the_gradient_is_that_of_the_slope() -> None:
    for layer in (SignActivation(steep), SignActivation("steep")):
        x = torch.linspace(-2, 2, 9).requires_grad_()
        y = layer(x)
        y.sum().backward()
        assert torch.equal(y, sign(x.detach()))
        torch.testing.assert_close(x.grad, steep(x.detach()))


class Largest(Scale):
    def alpha_of(self, W):
        return W.abs().flatten(1).amax(1)


def test_objects_stand_wherever_names_do() -> None:
    chosen = Binarization(scale=Largest, activation_estimator=steep, weight_estimator=nn.Hardtanh)
    assert (chosen.scale, chosen.activation_estimator, chosen.weight_estimator) == (
        "Largest",
        "steep",
        "Hardtanh",
    )
    assert Binarization(scale=Largest) == Binarization(scale="Largest")
    layer = BinaryLinear(4, 3, scale=Largest, weight_transform=lambda_free_transform, latent="svd")
    torch.testing.assert_close(layer.alpha(), layer.real_filters().abs().amax(1))
    register_estimator("mine", slope=polynomial)
    assert SignActivation(polynomial).estimator == "mine"


def lambda_free_transform(W):
    return lambda V: V - V.mean()


def test_a_second_conversion_keeps_what_it_can() -> None:
    model = net()
    binarize_(model, latent="none", scale=Largest, weight_transform=lambda_free_transform)
    before = model[2].latent, model[2].scale, model[2].weight_transform
    binarize_(model, latent="none", scale=Largest, weight_transform=lambda_free_transform)
    assert before == (model[2].latent, model[2].scale, model[2].weight_transform)
    binarize_(model, latent="none", scale="learned")
    assert model[2].weight_transform is None
    assert isinstance(model[2].scale, LearnedScale)


class Ternary(nn.Module):
    def forward(self, x):
        return torch.sign(x) * (x.abs() > 0.5) + 0 * x


class NoGradient(nn.Module):
    def forward(self, x):
        return x.detach()


class Smaller(nn.Module):
    def forward(self, x):
        return x.mean(1)


BAD_ESTIMATORS = [
    ({"slope": lambda x: x.mean(0)}, "slopes shaped"),
    ({"slope": lambda x: 1 / x.round()}, "NaN or infinity"),
    ({"slope": torch.zeros_like}, "a gradient"),
    ({"slope": 3}, "a function"),
    ({}, "slope or module"),
    ({"slope": steep, "module": Ternary}, "slope or module"),
    ({"module": Ternary}, "two values"),
    ({"module": NoGradient}, "a gradient"),
    ({"module": Smaller}, "values shaped"),
    ({"module": lambda: 3}, "a module"),
]


@pytest.mark.parametrize(("given", "words"), BAD_ESTIMATORS)
def test_what_is_no_estimator_is_refused(given, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        register_estimator("bad", **given)
    assert "\n" not in str(error.value)
    assert "bad" not in ACTIVATION_ESTIMATORS


class PerPixel(AnalyticScale):
    def __init__(self, W):
        super().__init__()

    def forward(self, y, W):
        return y * y.abs()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda W: nn.Identity(), "a Scale"),
        (PerPixel, "as a file holds it"),
        (lambda W: LearnedScale(torch.ones(3)), r"shape \(6,\)"),
        (lambda W: LearnedScale(analytic_alpha(W) / 0), "NaN"),
        (LearnedScale(torch.ones(6)), "pass its class"),
        (3, "a function"),
    ],
)
def test_what_is_no_scale_is_refused(build, words) -> None:
    with pytest.raises(InputError, match=words) as error:
        register_scale("bad", build)
    assert "\n" not in str(error.value)
    assert "bad" not in PER_CHANNEL


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda W: W, "a function or a module"),
        (lambda W: lambda V: V[:1], "a finite weight"),
        (lambda W: lambda V: V / 0, "NaN"),
        (lambda W: lambda V: V.detach(), "a gradient"),
        (lambda W: lambda V: 3, "a finite weight"),
        (lambda W: lambda V: V - W.mean(), "what a saved state gives back, found a value that is lost; keep"),
    ],
)
def test_what_is_no_transform_is_refused(build, words) -> None:
    with pytest.raises(InputError, match=words):
        register_weight_transform("bad", build)
    assert "bad" not in WEIGHT_TRANSFORMS


def test_names_that_are_taken() -> None:
    for register in (
        lambda: register_estimator("rms", slope=steep),
        lambda: register_scale("learned_map", Largest),
        lambda: register_weight_transform("none", lambda_free_transform),
    ):
        with pytest.raises(InputError, match="a new name"):
            register()
    with pytest.raises(InputError, match="a name of its own"):
        Binarization(scale=lambda W: AnalyticScale())
    with pytest.raises(InputError, match="a name of its own"):
        SignActivation(clipped)


def clipped(x):
    return steep(x)


def test_the_contracts_say_what_is_wrong() -> None:
    assert any("gradient" in line for line in check_estimator(NoGradient))
    assert any("values shaped" in line for line in check_estimator(Smaller))
    assert any("file" in line for line in check_scale(PerPixel))

    class Unsaved(Scale):
        def __init__(self, W):
            super().__init__()
            self.start = analytic_alpha(W)

        def alpha_of(self, W):
            return self.start.to(W)

    assert any(line.startswith("state") for line in check_scale(Unsaved))


def test_a_transform_is_between_any_latent_and_the_sign() -> None:
    for latent in LAYERWISE:
        layer = BinaryConv2d(4, 6, 3, latent=latent, weight_transform=lambda_free_transform)
        W = layer.latent()
        assert torch.equal(layer.binary_weight(), sign(W - W.mean()))
        assert isinstance(layer, BinaryLayer)


class LessFirstMean(nn.Module):
    def __init__(self, W):
        super().__init__()
        self.register_buffer("mean", W.mean())

    def forward(self, V):
        return V - self.mean


def test_a_transform_may_keep_what_it_takes_in_a_buffer() -> None:
    register_weight_transform("less_first_mean", LessFirstMean)
    assert WEIGHT_TRANSFORMS.pop("less_first_mean") is LessFirstMean
