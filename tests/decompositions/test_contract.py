"""What every latent keeps, for every entry of the tables."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bitfactor.decompositions import (
    JOINT,
    LAYERWISE,
    Latent,
    build_bank,
    class_of,
    orthogonality_penalty,
)
from bitfactor.nn import sign

Build = Callable[..., Latent]


def _in_bank(weight: Tensor, *choices: object) -> Latent:
    others = [torch.randn_like(weight) for _ in range(3)]
    return build_bank([weight, *others], [(0, 0), (0, 1), (1, 0), (1, 1)], *choices)[0]


def _shared(weight: Tensor, *choices: object) -> Latent:
    return JOINT["shared"]([weight, torch.randn_like(weight).transpose(0, 1)], *choices)[0]


BUILD: dict[str, Build] = {**LAYERWISE, "holistic": _in_bank, "shared": _shared}
SHAPES = [(6, 4, 3, 3), (6, 1, 3, 3), (4, 8, 1, 1), (5, 4, 3), (3, 4, 2, 3, 2), (6, 10), (10, 6)]
ERROR = {torch.float32: 1e-5, torch.float64: 1e-12}

shapes = st.lists(st.integers(1, 6), min_size=2, max_size=5).map(tuple)


def test_every_entry_is_here() -> None:
    assert BUILD.keys() == LAYERWISE.keys() | JOINT.keys()


@pytest.mark.parametrize("dtype", ERROR, ids=str)
@pytest.mark.parametrize("initialisation", ["factorised", "identity"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", BUILD)
def test_full_rank_gives_the_weight_back(name, shape, initialisation, dtype) -> None:
    weight = torch.randn(shape, dtype=dtype)
    latent = BUILD[name](weight, None, initialisation)
    assert latent.shape == shape
    assert latent().dtype == dtype
    assert latent().stride() == torch.empty(shape).stride()
    assert (latent() - weight).abs().max() <= ERROR[dtype] * weight.std()


@pytest.mark.parametrize("name", BUILD)
def test_a_resnet_shape_comes_back(name) -> None:
    weight = torch.randn(128, 128, 3, 3)
    W = BUILD[name](weight)()
    assert (W - weight).abs().max() <= 1e-5 * weight.std()


@settings(max_examples=15, deadline=None)
@given(
    shape=shapes, layout=st.sampled_from([torch.channels_last, torch.channels_last_3d, torch.preserve_format])
)
@pytest.mark.parametrize("name", BUILD)
def test_strides_are_canonical_in_every_memory_format(name, shape, layout) -> None:
    """(8, 3, 1, 1) with strides (3, 1, 3, 3) is both layouts to torch, whose kernels then corrupt memory."""
    if layout is torch.channels_last and len(shape) == 4:
        weight = torch.randn(shape).to(memory_format=layout)
    else:
        weight = torch.randn(shape)
    latent = BUILD[name](weight, None, "factorised").to(memory_format=layout)
    assert latent().stride() == sign(latent()).stride() == torch.empty(shape).stride()


@settings(max_examples=15, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99))
@pytest.mark.parametrize("name", BUILD)
def test_drawn_shapes_come_back_in_float64(name, shape, seed) -> None:
    torch.manual_seed(seed)
    weight = torch.randn(shape, dtype=torch.float64)
    assert (BUILD[name](weight)() - weight).abs().max() <= 1e-12 * max(weight.std(correction=0), 1)


@settings(max_examples=5, deadline=None)
@given(shape=st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple), fraction=st.floats(0.3, 0.99))
@pytest.mark.parametrize("name", [name for name in BUILD if name != "none"])
def test_gradcheck(name, shape, fraction) -> None:
    rank = None if name == "cosine" else fraction
    latent = BUILD[name](torch.randn(shape, dtype=torch.float64), rank)
    parameters = dict(latent.named_parameters())
    bank = getattr(latent, "bank", None)
    assert bank is None or parameters

    def weight(*values: Tensor) -> Tensor:
        return torch.func.functional_call(latent, dict(zip(parameters, values, strict=True)))

    values = tuple(value.detach().requires_grad_() for value in parameters.values())
    assert torch.autograd.gradcheck(weight, values)


@pytest.mark.parametrize("name", BUILD)
def test_parameters_stand_once_and_survive_copies(name) -> None:
    latents = nn.ModuleList([BUILD[name](torch.randn(6, 4, 3, 3))])
    state = latents.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    assert len(state) == len(list(latents.parameters()))
    copied = copy.deepcopy(latents)
    assert torch.equal(copied[0](), latents[0]())
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    copied.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(copied[0](), latents[0]())


@pytest.mark.parametrize("name", BUILD)
def test_reconstruction_ignores_autocast_and_reduced_matmul_precision(name) -> None:
    latent = BUILD[name](torch.randn(32, 16, 3, 3))
    expected = latent()
    gradients = torch.autograd.grad(expected.square().sum(), list(latent.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(latent(), expected)
    torch.set_float32_matmul_precision("medium")
    try:
        W = latent()
        reduced = torch.autograd.grad(W.square().sum(), list(latent.parameters()))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(W, expected)
    for a, b in zip(reduced, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", BUILD)
def test_half_precision_parameters_are_multiplied_in_float32(name, dtype) -> None:
    latent = BUILD[name](torch.randn(8, 4, 3, 3)).to(dtype)
    W = latent()
    assert W.dtype == torch.float32
    assert torch.equal(W, latent.float()())


@pytest.mark.parametrize("name", BUILD)
def test_penalty_is_zero_at_the_start_and_has_a_gradient_after(name) -> None:
    latent = BUILD[name](torch.randn(6, 4, 3, 3, dtype=torch.float64))
    assert orthogonality_penalty(latent).item() == pytest.approx(0, abs=1e-20)
    assert bool(latent.orthonormal()) == ("orthogonality" in class_of(name).takes)
    if not latent.orthonormal():
        return
    with torch.no_grad():
        for parameter in latent.parameters():
            parameter.mul_(2)
    orthogonality_penalty(latent).backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in latent.parameters())
