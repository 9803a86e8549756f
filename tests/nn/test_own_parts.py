"""Signs of weights of one's own, and layers under what torch does with models: func, jit, pickle."""

import io
import warnings

import pytest
import torch
from torch import nn

from bitfactor.nn import (
    BinaryConv2d,
    BinaryLinear,
    PReLU,
    ReLU,
    SignWeight,
    anneal_,
)


class Inverted(SignWeight):
    def forward(self, W):
        return -super().forward(W)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hooked", [True, False])
def test_a_sign_of_weights_of_ones_own_is_what_runs(hooked, dtype) -> None:
    torch.manual_seed(0)
    layer = BinaryConv2d(8, 6, 3, padding=1, scale="analytic", bias=False)
    x = torch.randn(2, 8, 5, 5).to(dtype)
    plain = layer(x).detach()
    if hooked:
        layer.sign_weight.register_forward_hook(lambda module, given, B: -B)
    else:
        layer.sign_weight = Inverted()
    torch.testing.assert_close(layer(x), -plain)


class Wrapped(torch.Tensor):
    """A subclass whose every operation is seen."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("build", [ReLU, lambda: PReLU(8), lambda: BinaryConv2d(8, 4, 3)])
def test_tensors_of_another_class_go_through_torch(build) -> None:
    torch.manual_seed(0)
    layer, x = build(), torch.randn(2, 8, 4, 4)
    y = layer(x.clone().as_subclass(Wrapped).requires_grad_())
    torch.testing.assert_close(y.as_subclass(torch.Tensor), layer(x), rtol=1e-5, atol=1e-5)
    y.sum().backward()


@pytest.mark.parametrize("estimator", ["clipped", "rms"])
@pytest.mark.parametrize("latent", ["none", "tucker", "window"])
def test_a_layer_under_transforms_of_torch(latent, estimator) -> None:
    """Gradients of each sample, and models stacked: torch.func."""
    torch.manual_seed(0)
    layer = BinaryLinear(6, 4, latent=latent, weight_estimator=estimator, scale="analytic")
    x = torch.randn(3, 6)
    parameters = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(values, sample):
        return torch.func.functional_call(layer, values, (sample,)).square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(each[name].sum(0), parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("graded", [True, False])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("latent", ["none", "tucker", "window"])
def test_torch_jit_traces_a_layer(latent, trained, graded) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), BinaryConv2d(8, 4, 3, latent=latent), PReLU(4), ReLU())
    model, x = model.train(trained), torch.randn(2, 3, 9, 9)
    with warnings.catch_warnings(action="ignore"), torch.set_grad_enabled(graded):
        traced = torch.jit.trace(model, x)
        torch.testing.assert_close(traced(x), model(x))
    if graded:
        gradients = [
            torch.autograd.grad(one(x).square().sum(), list(model.parameters())) for one in (traced, model)
        ]
        for of_trace, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(of_trace, expected, rtol=1e-3, atol=1e-3)


def test_an_annealed_estimator_that_nobody_anneals_is_said() -> None:
    layer, x = BinaryLinear(4, 4, activation_estimator="annealed"), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="anneal_"):
        layer(x)
    with warnings.catch_warnings(action="error"):
        layer(x)
        other = BinaryLinear(4, 4, activation_estimator="annealed")
        other.eval()(x)
        anneal_(other.train(), 0.0)
        other(x)


def test_a_model_is_pickled_whole() -> None:
    layer, file = BinaryConv2d(4, 4, 3, weight_estimator="rms", activation_estimator="annealed"), io.BytesIO()
    torch.save(layer.eval(), file)
    file.seek(0)
    x = torch.randn(1, 4, 5, 5)
    assert torch.equal(torch.load(file, weights_only=False)(x), layer(x))
