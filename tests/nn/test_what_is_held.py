"""What a layer holds is what it runs: the same in float32, which the compiled core takes, as in float64."""

import copy

import pytest
import torch
from torch import nn

from bitfactor.decompositions import LAYERWISE, Tucker, once_for_all
from bitfactor.nn import BinaryConv1d, BinaryConv2d, BinaryLinear, SignActivation
from bitfactor.nn.scale import AnalyticScale, LearnedScale

LAYERS = {
    "conv2d": (lambda **choices: BinaryConv2d(5, 6, 3, padding=1, **choices), (2, 5, 7, 7)),
    "conv1d": (lambda **choices: BinaryConv1d(5, 6, 3, **choices), (2, 5, 7)),
    "linear": (lambda **choices: BinaryLinear(5, 6, **choices), (3, 5)),
}


class Shifted(SignActivation):
    def forward(self, x):
        return super().forward(x - 0.3)


class Softer(SignActivation):
    """Another slope, the same signs."""

    def _slope(self, x):
        return lambda x: 1 / (1 + x * x)


class Halved(LearnedScale):
    def forward(self, y, W):
        return super().forward(y, W) / 2 + 1


class Peak(AnalyticScale):
    def alpha_of(self, W):
        return W.abs().flatten(1).amax(1)


class Negated(Tucker):
    def reconstruct(self):
        return -super().reconstruct().roll(1, 0)


def doubled(module, given, result):
    return 2 * result


def negated(module, given):
    return (-given[0], *given[1:])


def lowered(module, gradient):
    return (gradient[0] / 3,)


def lowered_of_input(module, gradients, of_output):
    return tuple(None if gradient is None else gradient / 3 for gradient in gradients)


def with_forward(layer):
    sign = layer.sign_input
    sign.forward = lambda x: 3 * SignActivation.forward(sign, x)


def with_class(part, kind):
    def change(layer):
        getattr(layer, part).__class__ = kind

    return change


CHANGES = {
    "sign: subclass": with_class("sign_input", Shifted),
    "sign: slope": with_class("sign_input", Softer),
    "sign: another module": lambda layer: setattr(layer, "sign_input", nn.Tanh()),
    "sign: forward of the object": with_forward,
    "sign: hook": lambda layer: layer.sign_input.register_forward_hook(doubled),
    "sign: pre-hook": lambda layer: layer.sign_input.register_forward_pre_hook(negated),
    "sign: backward hook": lambda layer: layer.sign_input.register_full_backward_hook(lowered_of_input),
    "sign: backward pre-hook": lambda layer: layer.sign_input.register_full_backward_pre_hook(lowered),
    "scale: subclass": with_class("scale", Halved),
    "scale: alpha": lambda layer: setattr(layer, "scale", Peak()),
    "scale: hook": lambda layer: layer.scale.register_forward_hook(doubled),
    "scale: pre-hook": lambda layer: layer.scale.register_forward_pre_hook(negated),
    "scale: backward hook": lambda layer: layer.scale.register_full_backward_hook(lowered_of_input),
    "latent: subclass": with_class("latent", Negated),
    "latent: hook": lambda layer: layer.latent.register_forward_hook(lambda *args: -args[-1]),
}


def results(layer, x):
    """Return output and gradients, in float64."""
    x = x.clone().requires_grad_()
    y = layer(x)
    of = torch.linspace(-1, 1, y.numel()).to(y.dtype).view_as(y)
    gradients = torch.autograd.grad(y, [x, *layer.parameters()], of, allow_unused=True)
    return [None if part is None else part.double() for part in (y, *gradients)]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_subclass_or_a_hook_is_run(change, kind) -> None:
    make, shape = LAYERS[kind]
    layer, x = make(), torch.randn(shape)
    plain = results(layer, x)
    CHANGES[change](layer)
    single = results(layer, x)
    double = results(layer.double(), x.double())
    torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-5)
    assert any(a is not None and not torch.equal(a, b) for a, b in zip(single, plain, strict=False))


def test_a_hook_of_all_modules_is_run() -> None:
    layer, seen = BinaryConv2d(5, 6, 3), []
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        layer(torch.randn(1, 5, 4, 4))
    finally:
        hook.remove()
    assert {layer.sign_input, layer.scale} <= set(seen)


@pytest.mark.parametrize("of_object", [False, True])
def test_a_product_of_ones_own_is_run(of_object) -> None:
    class Squared(BinaryConv2d):
        def apply_weight(self, x, B):
            return super().apply_weight(x, B).square()

    layer = BinaryConv2d(5, 6, 3) if of_object else Squared(5, 6, 3)
    if of_object:
        layer.apply_weight = lambda x, B: BinaryConv2d.apply_weight(layer, x, B).square()
    x = torch.randn(2, 5, 7, 7)
    single, double = layer(x), copy.deepcopy(layer).double()
    if of_object:
        double.apply_weight = lambda x, B: BinaryConv2d.apply_weight(double, x, B).square()
    torch.testing.assert_close(single.double(), double(x.double()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("latent", LAYERWISE)
def test_a_hook_of_a_latent_counts_once_in_gradients_that_add_up(latent) -> None:
    layer, x = BinaryConv2d(5, 6, 3, latent=latent, scale="analytic"), torch.randn(1, 5, 4, 4)
    layer.latent.register_forward_hook(doubled)
    layer(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    with once_for_all(layer):
        layer(x).sum().backward()
    found = [parameter.grad for parameter in layer.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_parameters_of_another_class_are_torchs_own() -> None:
    """The compiled weights read memory, and a tensor that wraps others has none of its own."""

    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            names.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    names: list[str] = []
    latent = Tucker.from_weight(torch.randn(6, 5, 3, 3))
    expected = latent()
    latent.core = nn.Parameter(latent.core.detach().as_subclass(Wrapped))
    torch.testing.assert_close(latent().as_subclass(torch.Tensor), expected)
    assert "permute" in names or "flatten" in names
