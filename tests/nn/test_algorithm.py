"""The layers against Algorithm 1 of the paper, written out in plain torch, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bitfactor.decompositions import LAYERWISE, SVD, Tucker
from bitfactor.nn import AnalyticScale, BinaryConv2d, LearnedScale, NoScale


class PlainSign(torch.autograd.Function):
    """sign with -1 at 0; gradient where inside(x)."""

    @staticmethod
    def forward(ctx, x: Tensor, inside: Tensor) -> Tensor:
        ctx.save_for_backward(inside)
        B = torch.empty_like(x)
        B[x <= 0] = -1
        B[x > 0] = 1
        return B

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.where(ctx.saved_tensors[0], gradient, 0), None


def algorithm_1(x: Tensor, W: Tensor, alpha: Tensor | None, stride: int) -> Tensor:
    """Lines 3 to 13: alpha learned, or else computed filter by filter; the weights carry it."""
    I = PlainSign.apply(x, x.abs() < 1)
    B = PlainSign.apply(W, W.abs() <= 1)
    if alpha is None:
        n = W[0].numel()
        scaled = torch.stack([W[k].abs().sum() / n * B[k] for k in range(W.shape[0])])
    else:
        scaled = torch.stack([alpha[k] * B[k] for k in range(W.shape[0])])
    return F.conv2d(I, scaled, stride=stride, padding=1)


def with_zeros(*shape: int) -> Tensor:
    x = 1.5 * torch.randn(shape, dtype=torch.float64)
    x[torch.rand(shape) < 0.2] = 0.0
    x[torch.rand(shape) < 0.05] = 1.0
    return x


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("name", LAYERWISE)
def test_forward_and_gradients(name, learned, stride) -> None:
    weight = with_zeros(5, 4, 3, 3)
    weight[0, 0] = 0  # a window that is zero in every basis
    latent = LAYERWISE[name](weight, None, "identity")
    assert (latent() == 0).any()
    alpha = torch.randn(5, dtype=torch.float64)
    layer = BinaryConv2d.of(
        latent, LearnedScale(alpha) if learned else AnalyticScale(), stride=stride, padding=1
    )
    x = with_zeros(2, 4, 7, 7).requires_grad_()
    leaves = [x, *layer.parameters()]
    y = layer(x)
    expected = algorithm_1(x, latent(), layer.scale.alpha if learned else None, stride)
    torch.testing.assert_close(y, expected)
    g = torch.randn_like(y)
    found, wanted = torch.autograd.grad(y, leaves, g), torch.autograd.grad(expected, leaves, g)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_svd_of_equation_5_and_tucker_of_equation_7() -> None:
    weight = torch.randn(5, 4, 3, 2, dtype=torch.float64)
    svd = SVD.from_weight(weight)
    torch.testing.assert_close(svd(), (svd.u @ torch.diag(svd.s) @ svd.vt).reshape(weight.shape))
    tucker = Tucker.from_weight(weight)
    expected = torch.einsum("abcd,ia,jb,kc,ld->ijkl", tucker.core, *tucker.factors)
    torch.testing.assert_close(tucker(), expected)


def test_without_scale_the_output_is_whole_numbers() -> None:
    layer = BinaryConv2d.of(
        LAYERWISE["none"](torch.randn(3, 4, 3, 3), None, "factorised"), NoScale(), padding=1
    )
    y = layer(torch.randn(1, 4, 5, 5))
    assert torch.equal(y, y.round())
    assert torch.equal(layer.alpha(), torch.ones(3))


def test_detached_analytic_scale_sends_no_gradient_through_alpha() -> None:
    weight = torch.full((1, 1, 1, 1), 2.0, dtype=torch.float64)  # masked, so alpha is the only path
    for detach, expected in ((True, 0.0), (False, 1.0)):
        latent = LAYERWISE["none"](weight, None, "factorised")
        y = BinaryConv2d.of(latent, AnalyticScale(detach=detach))(torch.ones(1, 1, 1, 1, dtype=torch.float64))
        (gradient,) = torch.autograd.grad(y.sum(), list(latent.parameters()), allow_unused=True)
        assert (0.0 if gradient is None else gradient.item()) == expected
