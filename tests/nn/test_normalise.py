"""A fused batch normalisation, sum and hard tanh has the values, gradients and statistics of torch's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bitfactor.models import ResNet
from bitfactor.nn import normalise
from bitfactor.nn.normalise import normalised
from bitfactor.nn.product import tanh_gradient
from bitfactor.nn.sign import SignActivation, anneal_, annealed, annealed_late
from bitfactor.runtime import instruction_sets

SHAPES = [(2, 1, 1, 1), (3, 5, 7, 6), (4, 16, 8, 8), (2, 48, 5, 3), (2, 130, 3, 3), (1, 3, 33, 2)]
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture
def taken(monkeypatch):
    """Count how often the compiled core did it."""
    counts = []
    real = normalise._Normalised.apply
    monkeypatch.setattr(normalise._Normalised, "apply", lambda *args: counts.append(1) or real(*args))
    return counts


def norm_of(channels):
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, -1.5, 1.5)
    nn.init.normal_(norm.bias)
    return norm


def results_of(run, norm, tensors):
    leaves = [
        None if x is None else x.clone(memory_format=torch.preserve_format).requires_grad_() for x in tensors
    ]
    y = run(norm, *leaves)
    y.backward(torch.linspace(-1, 2, y.numel()).to(torch.bfloat16).view(y.shape).to(y.dtype))
    gradients = [leaf.grad for leaf in leaves if leaf is not None]
    return [y.detach(), *gradients, norm.weight.grad, norm.bias.grad, *norm.buffers()]


def exact(run, norm, tensors):
    """Return what torch's modules give in float64."""
    wide = [None if x is None else x.double() for x in tensors]
    return results_of(run, copy.deepcopy(norm).double(), wide)


def expect_close(ours, theirs, tolerance) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), other.double(), atol=tolerance, rtol=tolerance)


def plain(clip):
    def run(norm, x, added):
        y = norm(x) if added is None else norm(x) + added
        return F.hardtanh(y) if clip else y

    return run


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_gradients_and_statistics_are_those_of_torch(shape, plus, clip, layout, taken) -> None:
    x = (5 + 3 * torch.randn(shape)).contiguous(memory_format=layout)
    added = torch.randn(shape) if plus else None  # in the other layout, half of the time
    if shape[0] * shape[2] * shape[3] == 1:
        x, added = x.repeat(2, 1, 1, 1), None if added is None else added.repeat(2, 1, 1, 1)
    norm = norm_of(shape[1])
    ours = results_of(lambda n, x, a: normalised(n, x, a, clip=clip), copy.deepcopy(norm), (x, added))
    assert taken
    expect_close(ours, exact(plain(clip), norm, (x, added)), 2e-5)


@pytest.mark.parametrize("isa", instruction_sets())
def test_each_instruction_set_gives_bfloat16_as_rounded_floats(isa, monkeypatch) -> None:
    monkeypatch.setenv("BITFACTOR_ISA", isa)
    x, added = (torch.randn(4, 16, 9, 9).to(torch.bfloat16) for _ in range(2))
    norm = norm_of(16)
    ours = results_of(lambda n, x, a: normalised(n, x, a), copy.deepcopy(norm), (x, added))
    assert ours[0].dtype == torch.bfloat16
    expect_close(ours, exact(plain(clip=False), norm, (x, added)), 0.02)


def test_a_mean_of_a_thousand_deviations_does_no_harm() -> None:
    x = 1000 + torch.randn(8, 4, 16, 16)
    norm = nn.BatchNorm2d(4)
    ours = results_of(lambda n, x, a: normalised(n, x, a), copy.deepcopy(norm), (x, None))
    expect_close(ours, exact(plain(clip=False), norm, (x, None)), 0.01)


def test_nan_comes_through() -> None:
    x = torch.randn(2, 3, 4, 4)
    x[1, 2] = torch.nan
    y = normalised(nn.BatchNorm2d(3), x, clip=True)
    assert y[:, 2].isnan().all()
    assert y[:, :2].isfinite().all()


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(3).eval(),
        nn.BatchNorm2d(3, affine=False),
        nn.BatchNorm2d(3, momentum=None),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.InstanceNorm2d(3),
    ],
)
def test_other_normalisations_are_left_to_torch(norm, taken) -> None:
    x = torch.randn(2, 3, 4, 4)
    theirs = copy.deepcopy(norm)(x)
    torch.testing.assert_close(normalised(norm, x), theirs)
    assert not taken


@pytest.mark.parametrize("hook", ["register_forward_hook", "register_full_backward_hook"])
def test_a_normalisation_that_is_watched_is_left_to_torch(hook, taken) -> None:
    norm, calls = nn.BatchNorm2d(3), []
    getattr(norm, hook)(lambda *_: calls.append(1) and None)
    normalised(norm, torch.randn(2, 3, 4, 4, requires_grad=True)).sum().backward()
    assert calls == [1]
    assert not taken


def test_all_normalisations_of_a_resnet_are_fused(taken) -> None:
    network = ResNet((1, 1), (8, 16), stem="halving", shortcuts="conv", num_classes=3)
    network(torch.randn(2, 3, 16, 16)).sum().backward()
    assert len(taken) == sum(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == 6


def test_a_batch_of_one_number_is_refused_as_torch_refuses_it() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        normalised(nn.BatchNorm2d(3), torch.randn(1, 3, 1, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("slope", [annealed, annealed_late])
def test_gradient_of_the_annealed_estimators(slope, progress, dtype, layout) -> None:
    x = torch.linspace(-40, 40, 2 * 5 * 9 * 9).view(2, 5, 9, 9).contiguous(memory_format=layout).to(dtype)
    activation, upon = SignActivation(slope.__name__), torch.randn(x.shape).to(dtype)
    anneal_(activation, progress)
    expected = slope(x.double(), torch.tensor(progress)) * upon.double()
    tolerance = 3e-6 if dtype == torch.float32 else 0.01
    for function in (activation, activation.sloped):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        function(leaf).backward(upon)
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        torch.testing.assert_close(leaf.grad.double(), expected, atol=tolerance, rtol=tolerance)
    huge = torch.full((1, 1, 1, 2), 3e38)
    assert tanh_gradient(huge, torch.ones_like(huge), 1.0, 10.0).isfinite().all()


def test_one_that_is_used_twice_in_a_graph():
    """Once as torch computes it, which keeps the statistics, and once in the compiled core."""
    norm, x = nn.BatchNorm2d(4), torch.randn(2, 4, 5, 6, requires_grad=True)
    y, z = normalised(norm, x.transpose(2, 3)), normalised(norm, x)
    (y.sum() + z.square().sum()).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("clip", [False, True])
def test_what_is_added_may_be_of_a_wider_type(clip):
    norm, x, added = nn.BatchNorm2d(4), torch.randn(2, 4, 5, 6).bfloat16(), torch.randn(2, 4, 5, 6)
    expected = copy.deepcopy(norm)(x) + added
    found = normalised(norm, x, added, clip=clip)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, F.hardtanh(expected) if clip else expected)
