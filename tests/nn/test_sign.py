"""Sign and each of its estimators: values, gradients, zeros and NaN."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from bitfactor.common.errors import InputError
from bitfactor.decompositions import Dense
from bitfactor.exporter import export
from bitfactor.format import sign as format_sign
from bitfactor.nn import (
    BinaryConv2d,
    BinaryLinear,
    SignActivation,
    SignWeight,
    anneal_,
    sign,
    straight_through,
)
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS, clipped, over_rms, polynomial
from bitfactor.nn.transform import centred, standardised
from bitfactor.runtime import Session, instruction_sets

EDGES = [-2.0, -1.0, -0.5, -1e-45, -0.0, 0.0, 1e-45, 0.5, 1.0, 2.0, float("inf"), -float("inf")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_sign_is_by_comparison_and_zero_is_minus_one(dtype) -> None:
    x = torch.tensor(EDGES, dtype=dtype)
    assert sign(x).dtype == dtype
    assert sign(x).tolist() == [1.0 if value > 0 else -1.0 for value in x.tolist()]


def test_sign_is_that_of_the_file_format() -> None:
    x = torch.cat([torch.tensor(EDGES), torch.randn(1000)])
    assert sign(x).tolist() == format_sign(x.numpy()).tolist()


def gradient_at(function, values) -> list[float]:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()


def test_clipped_gradient_passes_inside_one() -> None:
    assert gradient_at(lambda x: straight_through(x, clipped), [-2, -1, -0.5, 0, 0.5, 1, 2]) == [
        0,
        0,
        1,
        1,
        1,
        0,
        0,
    ]


def test_polynomial_gradient_is_a_triangle() -> None:
    assert gradient_at(SignActivation("polynomial"), [-2, -1, -0.5, 0, 0.5, 1]) == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize(("estimator", "least"), [("annealed", -1), ("annealed_late", -3)])
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_annealed_gradient_is_that_of_its_surrogate(progress, estimator, least) -> None:
    activation = SignActivation(estimator)
    anneal_(nn.Sequential(activation), progress)
    values = [-1.5, -0.1, 0.0, 0.03, 0.7]
    t = 10 ** (least + (1 - least) * progress)
    k = max(1 / t, 1)
    expected = gradient_at(lambda x: k * torch.tanh(t * x), values)
    assert gradient_at(activation, values) == pytest.approx(expected, rel=1e-5)
    assert activation.state_dict()["progress"] == progress


def test_masked_weight_gradient_includes_one() -> None:
    assert gradient_at(SignWeight(), [-1.1, -1, 0, 1, 1.1]) == [0, 1, 1, 1, 0]


def test_rms_sign_is_free_of_scale() -> None:
    sign_rms = SignWeight("rms")
    W = torch.randn(4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    g = torch.randn_like(W)
    (small,) = torch.autograd.grad((sign_rms(W) * g).sum(), W)
    (large,) = torch.autograd.grad((sign_rms(1000 * W) * g).sum(), W)
    assert torch.equal(sign_rms(W), sign(W))
    torch.testing.assert_close(small, large)
    radial = (small * W).flatten(1).sum(1)
    torch.testing.assert_close(radial, torch.zeros_like(radial), atol=1e-10, rtol=0)


def test_rms_sign_of_a_zero_filter_is_minus_one() -> None:
    assert SignWeight("rms")(torch.zeros(2, 3)).tolist() == [[-1.0] * 3] * 2


@pytest.mark.parametrize(
    "function", [*map(SignActivation, ACTIVATION_ESTIMATORS), *map(SignWeight, WEIGHT_ESTIMATORS)]
)
def test_every_estimator_gives_the_sign_and_a_gradient(function) -> None:
    x = torch.tensor([[-0.4, 0.0, 0.3]], requires_grad=True)
    y = function(x)
    assert y.tolist() == [[-1.0, -1.0, 1.0]]
    (y * torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert x.grad.abs().max() > 0


def test_an_unknown_estimator_is_an_error() -> None:
    with pytest.raises(InputError, match="did you mean clipped"):
        SignActivation("cliped")


def test_nan_raises_with_the_layer_name_when_anomalies_are_looked_for() -> None:
    layer = BinaryLinear.of(Dense.from_weight(torch.randn(2, 3)))
    layer.name = "layer3.0.conv1"
    x = torch.tensor([[0.0, float("nan"), 1.0]])
    layer(x)
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.raises(InputError, match=r"layer3\.0\.conv1.*1 of 3 values"),
    ):
        layer(x)
    with torch.no_grad():
        layer.latent.weight[0, 0] = float("nan")
    with torch.autograd.set_detect_anomaly(True), pytest.raises(InputError, match="latent weight"):
        layer(torch.zeros(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_nan_has_no_sign(dtype) -> None:
    x = torch.tensor([float("nan"), -1.0, 0.0, float("inf")], dtype=dtype)
    assert sign(x).isnan().tolist() == [True, False, False, False]


def test_nan_in_a_weight_reaches_the_loss() -> None:
    layer = BinaryLinear(3, 2)
    with torch.no_grad():
        layer.latent.core[0, 0] = float("nan")
    assert layer(torch.randn(4, 3)).sum().isnan()


@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (6, 5), (3, 1)])
def test_standardised_filters_are_those_of_the_publication(shape) -> None:
    W = torch.randn(shape, dtype=torch.float64) + 0.3
    dims = tuple(range(1, len(shape)))
    mean = W.mean(dims, keepdim=True)
    assert torch.equal(centred(W), W - mean)
    if W[0].numel() > 1:
        torch.testing.assert_close(standardised(W), (W - mean) / W.std(dims, keepdim=True))
    constant = torch.ones(shape, requires_grad=True)
    standardised(constant).sum().backward()
    assert constant.grad.isfinite().all()


@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_clamped_filters_are_those_of_recu(progress) -> None:
    """Against the formulas of the authors' code."""
    layer = BinaryConv2d(4, 6, 3, latent="none", weight_transform="clamped", weight_estimator="identity")
    anneal_(layer, progress)
    W = layer.latent().detach()
    w1 = (W - W.mean((1, 2, 3), keepdim=True)) / W.std((1, 2, 3), keepdim=True) * 2 * math.sqrt(2)
    tau = 0.85 + 0.14 * (math.exp(progress) - 1) / (math.e - 1)
    bound = float(-w1.abs().mean() * math.log(2 - 2 * tau))
    torch.testing.assert_close(layer.real_filters(), w1.clamp(-bound, bound))
    assert torch.equal(layer.binary_weight(), sign(w1))
    assert layer.state_dict()["weight_transform.progress"] == pytest.approx(progress)


def test_inputs_over_the_deviation_of_their_sample_keep_their_sign() -> None:
    estimator, x = SignActivation("over_deviation"), 5 * torch.randn(2, 3, 4, 4)
    assert torch.equal(estimator(x), sign(x))
    y = x.clone().requires_grad_()
    scaled = y / (y.var((1, 2, 3), keepdim=True) + 1e-5).sqrt()
    (expected,) = torch.autograd.grad(straight_through(scaled, polynomial).sum(), y)
    (found,) = torch.autograd.grad(estimator(y).sum(), y)
    torch.testing.assert_close(found, expected)


def test_the_wide_gradient_passes_inside_three() -> None:
    assert gradient_at(SignActivation("wide"), [-3, -2.9, 0, 1.5, 3]) == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("transform", ["centred", "standardised", "clamped", "periodic"])
@pytest.mark.parametrize("latent", ["none", "window"])
def test_a_transform_is_exported_as_its_signs(transform, latent, tmp_path) -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(
        8, 6, 3, latent=latent, weight_transform=transform, weight_estimator="annealed", scale="analytic"
    )
    anneal_(layer, 0.3)
    x = torch.randn(2, 8, 6, 6)
    layer(x).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.latent.parameters())
    export(layer.eval(), tmp_path / "net.safetensors", x)
    expected = layer(x).detach().numpy()
    for isa in instruction_sets():
        found = Session(tmp_path / "net.safetensors", isa=isa)(x.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("estimator", ["annealed", "annealed_late"])
def test_an_annealed_slope_is_not_zero_in_bfloat16_where_it_is_not(estimator) -> None:
    """Of vectors, which the compiled core does not take."""
    sign = SignActivation(estimator)
    sign.progress.fill_(1.0)
    sign.annealing = True
    x = torch.tensor([0.3008, 0.4004, 0.5]).bfloat16().requires_grad_()
    sign(x).sum().backward()
    exact = 10 * (1 - torch.tanh(10 * x.detach().double()).square())
    torch.testing.assert_close(x.grad.double(), exact, rtol=0.01, atol=0)


@pytest.mark.parametrize("value", [0.0, 0.3])
@pytest.mark.parametrize("transform", [over_rms, standardised])
def test_a_filter_of_equal_weights_has_a_gradient_of_usual_size(transform, value) -> None:
    W = torch.randn(3, 8, 3, 3)
    W[0] = value
    W.requires_grad_()
    transform(W).backward(torch.randn(W.shape))
    assert W.grad.isfinite().all()
    assert W.grad[0].abs().max() < 100
