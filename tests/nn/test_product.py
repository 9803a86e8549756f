"""The product of signs, the core's and torch's, against convolutions of real numbers that torch derives."""

import os
import subprocess
import sys
from itertools import cycle
from itertools import product as product_of

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_beside
from torch import nn
from torch.autograd import forward_ad

from bitfactor.nn import BinaryConv1d, BinaryConv2d, BinaryConv3d, BinaryLinear
from bitfactor.nn.sign import ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS
from bitfactor.runtime import instruction_sets


def without_core(patch):
    """Let torch multiply signs, as on a GPU."""
    patch.setattr("bitfactor.nn.product._is_of_core", lambda x, V: False)


@pytest.fixture(params=["core", "torch"])
def product(request, monkeypatch):
    """Let the compiled core multiply signs, or torch."""
    if request.param == "torch":
        without_core(monkeypatch)
    return request.param


@pytest.fixture
def plainly(monkeypatch):
    """Return what a function gives where real numbers are multiplied, step by step."""

    def plainly(run):
        with monkeypatch.context() as patch:
            patch.setattr("bitfactor.nn.layer.takes", lambda x, V: False)
            return run()

    return plainly


def run(layer, x, gradient=None):
    """Return output and gradients, of the input first; `gradient` is the output's, ones if left out."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    gradient = torch.ones_like(y) if gradient is None else gradient
    gradients = torch.autograd.grad(y, [x, *layer.parameters()], gradient)
    return y.detach(), gradients


def integers(shape, largest=3):
    return torch.randint(-largest, largest + 1, shape).float()


class Took:
    """Counts what the compiled core has multiplied."""

    def __init__(self, monkeypatch):
        from bitfactor.nn import conv, product

        self.calls = 0
        monkeypatch.setattr(conv, "binary_conv2d", self)
        self.real = product.binary_conv2d

    def __call__(self, *arguments):
        self.calls += 1
        return self.real(*arguments)


@pytest.fixture
def took(monkeypatch):
    return Took(monkeypatch)


@st.composite
def convolutions(draw):
    """Draw a layer, its input, and whether that is channels-last."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    per_group, outputs = (
        draw(st.sampled_from([1, 3, 20, 32, 33, 64, 70])),
        draw(st.sampled_from([1, 5, 16, 40])),
    )
    kernel = tuple(draw(st.sampled_from([1, 2, 3, 5])) for _ in range(2))
    layer = BinaryConv2d(
        per_group * groups,
        outputs * groups,
        kernel,
        stride=draw(st.sampled_from([1, 2, (1, 3)])),
        padding=tuple(draw(st.integers(0, k // 2)) for k in kernel),
        dilation=draw(st.sampled_from([1, 1, 2])),
        groups=groups,
        bias=draw(st.booleans()),
        latent="none",
    )
    size = [draw(st.integers(2 * k, 12)) for k in kernel]
    return layer, torch.randn(draw(st.integers(1, 3)), per_group * groups, *size), draw(st.booleans())


@pytest.mark.parametrize("core", [True, False])
@given(drawn=convolutions())
def test_sums_and_gradients_of_integers_are_the_same_bits(core, drawn):
    layer, x, last = drawn
    with torch.no_grad():
        layer.scale.alpha.copy_(2.0 ** integers(layer.scale.alpha.shape, 2))
        layer.scale.alpha[::3].neg_()
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    gradient = integers(layer(x).shape)
    with pytest.MonkeyPatch.context() as patch:
        if not core:
            without_core(patch)
        y, gradients = run(layer, x, gradient)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bitfactor.nn.layer.takes", lambda x, V: False)
        expected, of_plain = run(layer, x, gradient)
    assert torch.equal(y, expected)
    assert y.stride() == expected.stride() or not core
    for found, wanted in zip(gradients, of_plain, strict=True):
        assert torch.equal(found, wanted)


SCALES = ["none", "analytic", "learned"]
PAIRS = list(product_of(ACTIVATION_ESTIMATORS, WEIGHT_ESTIMATORS))


@pytest.mark.parametrize(
    ("activation", "weight", "scale"),
    slow_beside(
        ((*pair, scale) for pair, scale in zip(PAIRS, cycle(SCALES), strict=False)),
        ((*pair, scale) for pair, scale in product_of(PAIRS, SCALES)),
    ),
)
def test_every_estimator_and_scale(product, plainly, took, activation, weight, scale):
    estimators = {"weight_estimator": weight, "activation_estimator": activation}
    layer = BinaryConv2d(40, 24, 3, padding=1, scale=scale, input_scale=True, **estimators)
    x, gradient = torch.randn(2, 40, 7, 6), torch.randn(2, 24, 7, 6)
    found, expected = run(layer, x, gradient), plainly(lambda: run(layer, x, gradient))
    assert took.calls == 1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(layer(x), plainly(lambda: layer(x)))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (BinaryConv1d(24, 16, 5, stride=2, padding=2), (3, 24, 30)),
        (BinaryLinear(70, 33), (4, 5, 70)),
        (BinaryLinear(70, 33), (70,)),
        (BinaryConv2d(8, 16, 3, padding="same"), (2, 8, 5, 5)),
    ],
)
def test_other_layers_that_it_takes(product, plainly, took, layer, shape):
    x = torch.randn(shape)
    found, expected = run(layer, x), plainly(lambda: run(layer, x))
    assert took.calls == 1
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (BinaryConv3d(4, 8, 3), torch.randn(1, 4, 5, 5, 5)),
        (BinaryConv2d(4, 8, 3, padding=1, padding_value=1), torch.randn(1, 4, 5, 5)),
        (BinaryConv2d(4, 8, 3, padding=1, padding_mode="reflect"), torch.randn(1, 4, 5, 5)),
        (BinaryConv2d(4, 8, 2, padding="same"), torch.randn(1, 4, 5, 5)),
        (BinaryConv2d(4, 8, 3), torch.randn(4, 5, 5)),
    ],
)
def test_what_it_does_not_take_is_multiplied_step_by_step(took, layer, x):
    assert run(layer, x)[0].isfinite().all()
    assert took.calls == 0


@pytest.mark.parametrize("last", [False, True])
def test_bfloat16_is_the_exact_sum_rounded_once(last):
    layer = BinaryConv2d(300, 64, 3, padding=1, latent="none", bias=False)
    x = torch.randn(2, 300, 9, 9)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    exact, (of_x, *_) = run(layer, x)
    with torch.autocast("cpu", torch.bfloat16):
        y, (also_of_x, *_) = run(layer, x)
    assert torch.equal(y, exact.bfloat16())
    assert also_of_x.dtype == torch.float32
    torch.testing.assert_close(also_of_x, of_x, rtol=0.05, atol=0.05)


def test_the_bits_do_not_depend_on_threads_nor_those_of_outputs_on_the_instruction_set(monkeypatch):
    layer, x = BinaryConv2d(70, 40, 3, padding=1), torch.randn(5, 70, 9, 9)
    expected = run(layer, x)
    threads = torch.get_num_threads()
    for isa in instruction_sets():
        monkeypatch.setenv("BITFACTOR_ISA", isa)
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            try:
                found.append(run(layer, x))
            finally:
                torch.set_num_threads(threads)
        (one, gradients), (other, others) = found
        assert torch.equal(one, expected[0])
        assert torch.equal(other, expected[0])
        assert all(map(torch.equal, gradients, others))


def test_float64_is_multiplied_by_torch(plainly, took):
    layer, x = BinaryConv2d(4, 8, 3).double(), torch.randn(1, 4, 5, 5).double()
    torch.testing.assert_close(run(layer, x), plainly(lambda: run(layer, x)), rtol=1e-12, atol=1e-12)
    assert took.calls == 1


def test_float64_stays_so_under_autocast():
    layer = BinaryConv2d(4, 8, 3).double()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(1, 4, 5, 5).double()).dtype == torch.float64


def test_what_else_torch_derives_is_multiplied_step_by_step(took, monkeypatch):
    without_core(monkeypatch)
    layer, x = BinaryConv2d(4, 6, 3, padding=1, latent="none"), torch.randn(2, 4, 5, 5)
    alpha = layer.scale.alpha.detach()
    layer.requires_grad_(False)
    del layer.scale.alpha
    with forward_ad.dual_level():
        layer.scale.alpha = forward_ad.make_dual(alpha, torch.ones_like(alpha))
        y, tangent = forward_ad.unpack_dual(layer(x))
    torch.testing.assert_close(tangent * alpha.view(-1, 1, 1), y - layer.bias.view(-1, 1, 1))
    layer.scale.alpha = alpha
    layer(x.half())

    class Own(torch.Tensor):
        pass

    assert type(layer(x.as_subclass(Own))) is Own
    assert took.calls == 0


def test_compiled_it_is_one_graph_with_the_same_gradients(product):
    layer, x = BinaryConv2d(8, 6, 3, padding=1), torch.randn(2, 8, 5, 5)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            expected = run(layer, x)
            x_again = x.clone().requires_grad_()
            y = compiled(x_again)
            gradients = torch.autograd.grad(y, [x_again, *layer.parameters()], torch.ones_like(y))
        torch.testing.assert_close((y, gradients), expected, rtol=1e-2, atol=1e-2)


def test_gradients_of_many_outputs_at_once(plainly, monkeypatch):
    without_core(monkeypatch)
    layer, x = BinaryLinear(4, 3, latent="none"), torch.randn(2, 4)

    def jacobian():
        return torch.autograd.functional.jacobian(layer, x, vectorize=True)

    assert torch.equal(jacobian(), plainly(jacobian))


def test_a_second_gradient_is_refused(product):
    x = torch.randn(2, 4, 5, 5, requires_grad=True)
    y = BinaryConv2d(4, 6, 3, latent="none")(x)
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|no autograd formula"):
        gradient.square().sum().backward()


def test_a_rounded_scale_does_not_round_gradients_of_weights(plainly, monkeypatch):
    without_core(monkeypatch)
    layer, x = BinaryConv2d(4, 6, 3, padding=1, latent="none", bias=False), torch.randn(2, 4, 5, 5)
    layer.scale.bfloat16()
    (_, of_V, of_alpha), (_, expected, _) = run(layer, x)[1], plainly(lambda: run(layer, x))[1]
    torch.testing.assert_close(of_V, expected, rtol=1e-5, atol=1e-5)
    assert of_alpha.dtype == torch.bfloat16


def test_core_and_torch_round_alike_where_sums_fit(monkeypatch):
    layer, x = BinaryConv2d(24, 16, 3, padding=1, latent="none"), torch.randn(2, 24, 9, 9).bfloat16()
    expected = run(layer, x)
    without_core(monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(run(layer, x)[1], expected[1], strict=True))
    assert torch.equal(run(layer, x)[0], expected[0])


@pytest.mark.parametrize("where", ["input", "weight"])
def test_no_number_reaches_the_output(where):
    layer, x = BinaryConv2d(8, 8, 3, latent="none"), torch.randn(1, 8, 5, 5)
    with torch.no_grad():
        (x if where == "input" else layer.latent.weight)[0, 3, 1, 1] = torch.nan
    assert layer(x).isnan().all()


def test_signs_of_zeros_denormals_infinities_and_of_what_is_next_to_one(product, plainly):
    one, most = 1 + 2**-23, 1 - 2**-24
    values = torch.tensor([0, -0.0, 1e-45, -1e-45, torch.inf, -torch.inf, 1, -1, one, -one, most, -most])
    layer = BinaryLinear(12, 4, latent="none", scale="none", bias=False)
    with torch.no_grad():
        layer.latent.weight.copy_(torch.stack([values, values.flip(0), 2 * values, values.roll(1)]))
    assert torch.equal(layer(values), plainly(lambda: layer(values)))
    found, expected = run(layer, values)[1], plainly(lambda: run(layer, values))[1]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("product", "bits", "of_weight"), [("core", 2, 2), ("torch", 8, 16)], indirect=["product"]
)
def test_two_bits_or_a_byte_are_kept_where_an_activation_was(product, bits, of_weight):
    model = nn.Sequential(*(BinaryConv2d(64, 64, 3, padding=1, latent="none", bias=False) for _ in range(3)))
    kept = {}

    def keep(tensor):
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    x = torch.randn(8, 64, 16, 16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x)
    weights = 3 * 64 * 64 * 9
    assert 8 * sum(kept.values()) <= 3 * x.numel() * bits + weights * of_weight + 3 * 32 * 64


def test_without_the_core_a_line_says_so_and_torch_multiplies():
    code = """
import sys, torch
sys.modules["bitfactor.common._native"] = None
from bitfactor.nn import BinaryConv2d
torch.manual_seed(0)
layer = BinaryConv2d(3, 4, 3)
print(layer(torch.randn(1, 3, 4, 4)).sum().item())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    torch.manual_seed(0)
    layer = BinaryConv2d(3, 4, 3)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) == layer(torch.randn(1, 3, 4, 4)).sum().item()
    assert found.stderr.count("binary layers run without the compiled core, slower") == 1
