"""The compiled core mixes core slices as the product with the Kronecker product of rows and taps does."""

import pytest
import torch

from bitfactor.decompositions import compiled, multilinear, precision
from bitfactor.decompositions.mixing import mix, unmix
from bitfactor.decompositions.multilinear import tucker_weights
from bitfactor.runtime import instruction_sets

SHAPES = [  # weights, cores, taps, inner taps, channels of both modes
    (1, 1, 9, 9, 8, 8),
    (3, 3, 9, 9, 17, 5),
    (1, 4, 9, 9, 16, 16),
    (24, 24, 9, 9, 5, 3),
    (2, 3, 1, 1, 70, 61),  # more pairs than a strip has, and a block that is not full
    (5, 7, 49, 49, 3, 3),
    (2, 4, 9, 5, 1, 1),
]


def drawn(shape):
    weights, cores, taps, inner, output, channel = shape
    return (
        torch.randn(cores, output, channel, inner),
        torch.randn(weights, cores),
        torch.randn(taps, inner),
        torch.randn(weights, taps, output, channel),
    )


def plain(monkeypatch, function, *arguments):
    with monkeypatch.context() as context:
        context.setattr(compiled, "available", lambda: False)
        return function(*arguments)


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_as_without_the_core(monkeypatch, shape, isa):
    monkeypatch.setenv("BITFACTOR_ISA", isa)
    cores, rows, taps, of_x = drawn(shape)
    expected = plain(monkeypatch, mix, cores, rows, taps, torch.float32)
    found = mix(cores, rows, taps, torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(mix(cores, rows, taps, torch.bfloat16), found.bfloat16())
    expected = plain(monkeypatch, unmix, of_x, cores, rows, taps)
    torch.testing.assert_close(unmix(of_x, cores, rows, taps), expected, rtol=1e-4, atol=1e-3)
    rough = unmix(of_x.bfloat16(), cores, rows, taps)
    torch.testing.assert_close(rough, unmix(of_x.bfloat16().float(), cores, rows, taps), rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_bits_on_every_instruction_set_and_with_every_number_of_threads(monkeypatch, shape):
    cores, rows, taps, of_x = drawn(shape)
    threads, found = torch.get_num_threads(), []
    try:
        for isa in instruction_sets():
            for count in (1, 3):
                torch.set_num_threads(count)
                monkeypatch.setenv("BITFACTOR_ISA", isa)
                found.append((mix(cores, rows, taps, torch.float32), unmix(of_x, cores, rows, taps)))
    finally:
        torch.set_num_threads(threads)
    for x, (of_cores, _, _) in found:
        assert torch.equal(x, found[0][0])
        assert torch.equal(of_cores, found[0][1][0])
    for one, other in zip(found[::2], found[1::2], strict=True):  # a sum over pairs has a set's own order
        assert all(map(torch.equal, one[1], other[1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_those_of_the_definition(dtype):
    cores, rows, taps, of_x = (tensor.to(dtype) for tensor in drawn((3, 2, 9, 4, 6, 5)))
    operands = [tensor.requires_grad_() for tensor in (cores, rows, taps)]
    x = torch.einsum("pg,Tt,gabt->pTab", rows, taps, cores)
    torch.testing.assert_close(mix(*[tensor.detach() for tensor in operands], dtype), x.detach())
    expected = torch.autograd.grad(x, operands, of_x)
    torch.testing.assert_close(unmix(of_x, *[t.detach() for t in operands]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_rough_gradients_of_several_weights_at_once(monkeypatch, at_once):
    cores, rows, _, _ = drawn((5, 5, 9, 9, 6, 4))
    factors, of_W = [torch.randn(n, n) for n in (6, 4, 3, 3)], torch.randn(5, 6, 4, 3, 3)
    operands = [x.requires_grad_() for x in (cores, rows, *factors)]

    def gradients():
        weights = tucker_weights(cores.view(5, 6, 4, 3, 3), rows, operands[2:])
        return torch.autograd.grad(weights, operands, list(of_W))

    exact = gradients()
    monkeypatch.setattr(precision, "_cpu_multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(multilinear, "_AT_ONCE", at_once * of_W[0].numel())
    with precision.bfloat16_training("cpu"):
        for rough, expected in zip(gradients(), exact, strict=True):
            assert (rough - expected).norm() < 0.01 * expected.norm()
