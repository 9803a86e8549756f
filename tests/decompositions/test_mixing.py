"""The compiled core makes the weights of a grid, and leads their gradients back, as torch does."""

import pytest
import torch

from bitfactor.decompositions import compiled, mixing, precision
from bitfactor.decompositions.mixing import tucker_weights
from bitfactor.runtime import instruction_sets

CASES = [  # factors of the grid's modes, of the outputs, of the channels, of the taps' modes
    ([], (8, 8), (8, 8), [(3, 3), (3, 3)]),
    ([(3, 3)], (17, 16), (5, 7), [(3, 3), (3, 3)]),
    ([(2, 3), (4, 4)], (70, 61), (33, 50), []),
    ([(1, 4)], (16, 16), (16, 3), [(9, 9)]),
    ([(2, 2), (3, 3), (4, 4)], (5, 5), (3, 3), [(3, 3), (3, 3)]),
    ([(2, 2)], (3, 3), (3, 3), [(7, 7), (7, 7)]),
    ([(2, 4)], (1, 1), (1, 1), [(3, 5), (3, 1)]),
    ([], (128, 128), (64, 64), [(3, 3), (3, 3)]),
]


def drawn(case, dtype=torch.float32):
    """Return the number of the grid's modes, core and factors, and gradients of the weights."""
    grid, output, channel, taps = case
    sizes = [*grid, output, channel, *taps]
    core = torch.randn([inner for _, inner in sizes], dtype=dtype)
    places = torch.Size([outer for outer, _ in grid]).numel()
    of_weights = torch.randn(places, *(outer for outer, _ in sizes[len(grid) :]), dtype=dtype)
    factors = [torch.randn(size, dtype=dtype) for size in sizes]
    return len(grid), [operand.requires_grad_() for operand in (core, *factors)], list(of_weights)


def made(modes, operands, of_weights):
    core, *factors = operands
    weights = tucker_weights(core, factors[:modes], factors[modes:])
    return torch.stack(weights).detach(), torch.autograd.grad(weights, operands, of_weights)


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_without_the_core(monkeypatch, case, isa):
    monkeypatch.setenv("BITFACTOR_ISA", isa)
    given = drawn(case)
    weights, gradients = made(*given)
    monkeypatch.setattr(compiled, "available", lambda: False)
    expected, of_operands = made(*given)
    for found, other in zip([weights, *gradients], [expected, *of_operands], strict=True):
        assert (found - other).norm() < 1e-5 * other.norm()


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_on_every_instruction_set_and_with_every_number_of_threads(monkeypatch, case):
    given = drawn(case)
    threads, found = torch.get_num_threads(), []
    try:
        for isa in instruction_sets():
            for count in (1, 3):
                torch.set_num_threads(count)
                monkeypatch.setenv("BITFACTOR_ISA", isa)
                found.append(made(*given))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(weights, found[0][0]) for weights, _ in found)
    for (_, one), (_, other) in zip(found[::2], found[1::2], strict=True):
        assert all(map(torch.equal, one, other))  # a sum over pairs of channels has a set's own order


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("grid", [(3, 2), (1, 1)])
def test_gradients_are_those_of_the_definition(grid, dtype):
    given = drawn(([grid], (6, 6), (5, 5), [(3, 3), (4, 2)]), dtype)
    _, operands, of_weights = given
    weights = torch.einsum("gabtu,pg,oa,cb,st,vu->pocsv", *operands)
    expected = torch.autograd.grad(weights, operands, torch.stack(of_weights))
    torch.testing.assert_close(made(*given), (weights.detach(), expected), rtol=1e-4, atol=1e-4)


def by_tiles(monkeypatch):
    """Let gradients be formed by tiles, whatever the size and the machine; no other way is left."""
    monkeypatch.setattr(compiled, "has_tiles", lambda: True)
    monkeypatch.setattr(mixing, "_LEAST_OF_TILES", 0)
    monkeypatch.setattr(mixing._Plain, "apply", None)


@pytest.mark.parametrize("way", ["core", "torch", "tiles"])
@pytest.mark.parametrize("case", CASES)
def test_rough_gradients(monkeypatch, case, way):
    monkeypatch.setattr(compiled, "available", lambda: way != "torch")
    monkeypatch.setattr(compiled, "has_tiles", lambda: False)
    monkeypatch.setattr(precision, "cpu_multiplies_bfloat16", lambda: True)
    given = drawn(case)
    exact, gradients = made(*given)
    if way == "tiles":
        by_tiles(monkeypatch)
        monkeypatch.setattr(mixing._Compiled, "apply", None)
    with precision.bfloat16_training("cpu"):
        found, rough = made(*given)
    assert torch.equal(found, exact)
    for one, expected in zip(rough, gradients, strict=True):
        assert (one - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize("frozen", range(6))
def test_what_needs_no_gradient_has_none(monkeypatch, frozen, tiles):
    if tiles:
        by_tiles(monkeypatch)
        monkeypatch.setattr(precision, "cpu_multiplies_bfloat16", lambda: True)
    modes, operands, of_weights = drawn(CASES[1])
    operands[frozen].requires_grad_(False)
    core, *factors = operands
    with precision.bfloat16_training("cpu" if tiles else "none"):
        weights = tucker_weights(core, factors[:modes], factors[modes:])
    torch.autograd.backward(weights, of_weights)
    assert [operand.grad is None for operand in operands] == [place == frozen for place in range(6)]


@pytest.mark.parametrize("channels", [128, 255, 256])
def test_large_weights_gain_by_tiles(monkeypatch, channels):
    monkeypatch.setattr(compiled, "has_tiles", lambda: True)
    monkeypatch.setattr(precision, "cpu_multiplies_bfloat16", lambda: True)
    output, channel = torch.empty(128, 8), torch.empty(channels, 8)
    assert not mixing._gains_by_tiles(output, channel)
    with precision.bfloat16_training("cpu"):
        assert mixing._gains_by_tiles(output, channel) is (channels == 256)
