"""What a user puts into a layer is what runs: in every dtype, with or without the compiled core."""

import io
import warnings

import pytest
import torch
from torch import nn

from bitfactor.nn import (
    AnalyticScale,
    BinaryConv2d,
    BinaryLinear,
    LearnedScale,
    PReLU,
    ReLU,
    SignActivation,
    SignWeight,
    anneal_,
)


class Shifted(SignActivation):
    def forward(self, x):
        return super().forward(x - 0.5)


class Doubled(AnalyticScale):
    def forward(self, y, W):
        return 2 * super().forward(y, W)


class Larger(AnalyticScale):
    def alpha_of(self, W):
        return 3 * super().alpha_of(W)


class Inverted(SignWeight):
    def forward(self, W):
        return -super().forward(W)


class Offset(BinaryConv2d):
    def apply_weight(self, x, B):
        return super().apply_weight(x, B) + 1


def _hooked(part, change):
    def put(layer):
        getattr(layer, part).register_forward_hook(lambda module, given, output: change(output))

    return put


def _own_forward(layer):
    layer.scale.forward = lambda y, W: 5 * y


def _own_apply(layer):
    layer.apply_weight = lambda x, B: BinaryConv2d.apply_weight(layer, x, B) - 2


def _pre_hook(layer):
    layer.sign_input.register_forward_pre_hook(lambda module, given: (given[0] - 0.3,))


PARTS = {
    "sign_input": lambda layer: setattr(layer, "sign_input", Shifted()),
    "scale": lambda layer: setattr(layer, "scale", Doubled()),
    "alpha": lambda layer: setattr(layer, "scale", Larger()),
    "sign_weight": lambda layer: setattr(layer, "sign_weight", Inverted()),
    "hook on sign_input": _hooked("sign_input", lambda y: -y),
    "hook before sign_input": _pre_hook,
    "hook on scale": _hooked("scale", lambda y: y + 1),
    "hook on sign_weight": _hooked("sign_weight", lambda y: -y),
    "hook on latent": _hooked("latent", lambda W: W - 0.01),
    "forward of scale": _own_forward,
    "apply_weight": _own_apply,
    "module": lambda layer: setattr(layer, "sign_input", nn.Hardtanh()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_ones_own_is_what_runs(part, dtype) -> None:
    torch.manual_seed(0)
    layer, x = BinaryConv2d(8, 6, 3, padding=1, latent="none", scale="analytic"), torch.randn(2, 8, 5, 5)
    plain = layer(x.to(dtype)).detach()
    PARTS[part](layer)
    found, exact = layer(x.to(dtype)), layer.double()(x.to(dtype).double())
    assert (found.double() - exact).abs().max() <= (1e-4 if dtype == torch.float32 else 0.3)
    assert (found - plain).abs().max() > 0.05


def test_a_subclass_of_a_layer_runs_its_own_product() -> None:
    torch.manual_seed(0)
    layer = Offset(8, 6, 3, latent="none", scale="none", bias=False)
    x = torch.randn(2, 8, 5, 5)
    torch.testing.assert_close(layer(x), BinaryConv2d.of(layer.latent)(x) + 1)


def test_a_hook_on_all_modules_sees_the_parts() -> None:
    layer, seen = BinaryLinear(8, 4), []
    hook = nn.modules.module.register_module_forward_hook(lambda module, given, y: seen.append(type(module)))
    try:
        layer(torch.randn(2, 8))
    finally:
        hook.remove()
    assert {SignActivation, SignWeight, LearnedScale} <= set(seen)


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
