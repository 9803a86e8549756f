"""Parameters that several layers share: once each, in any container, also after a deep copy."""

import copy
import pickle

import pytest
import torch
from torch import nn

from bitfactor.decompositions import build_bank, build_shared, orthogonality_penalty


def bank_slices() -> nn.Module:
    return nn.Sequential(*build_bank([torch.randn(4, 4, 3, 3) for _ in range(3)], [(0,), (1,), (2,)]))


def shared_tuckers() -> nn.Module:
    return nn.Sequential(*build_shared([torch.randn(s) for s in [(4, 4, 3, 3), (8, 4, 3, 3), (8, 8, 1, 1)]]))


@pytest.mark.parametrize("build", [bank_slices, shared_tuckers])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_shares_as_the_original_and_nothing_with_it(build, clone) -> None:
    model = build()
    copied = clone(model)
    assert list(copied.state_dict()) == list(model.state_dict())
    assert len(list(copied.parameters())) == len(copied.state_dict()) == len(model.state_dict())
    before = [latent() for latent in model]
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1)
    for latent, W, other in zip(model, before, copied, strict=True):
        assert torch.equal(latent(), W)
        assert not torch.equal(other(), W)


def test_bank_has_one_core_and_one_factor_per_mode() -> None:
    assert list(bank_slices().state_dict()) == ["0.bank.core", *(f"0.bank.factors.{n}" for n in range(5))]


@pytest.mark.parametrize("build", [bank_slices, shared_tuckers])
def test_a_part_freezes_casts_and_stores_what_it_shares(build) -> None:
    model = build()
    part, before = model[1], [latent().detach() for latent in model]
    assert part.load_state_dict(part.state_dict()).missing_keys == []
    part.requires_grad_(False)
    assert not part().requires_grad
    part.double()
    for latent, W in zip(model, before, strict=True):
        torch.testing.assert_close(latent().float(), W)
    assert next(iter(part.state_dict().values())).dtype == torch.float64
    assert len(list(part.parameters())) == len(part.state_dict())


@pytest.mark.parametrize("build", [bank_slices, shared_tuckers])
def test_a_state_without_what_is_shared_is_refused(build) -> None:
    model = build()
    model.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*0\."):
        model.load_state_dict({})


def test_places_may_come_in_any_order() -> None:
    weights = [torch.randn(3, 2) for _ in range(4)]
    places = [(1, 1), (0, 1), (1, 0), (0, 0)]
    for latent, weight in zip(build_bank(weights, places), weights, strict=True):
        assert torch.allclose(latent(), weight, atol=1e-5)


def test_one_factor_per_channel_width() -> None:
    names = [name for name in shared_tuckers().state_dict() if name.endswith("factor")]
    assert names == ["0.output.factor", "1.output.factor"]


def test_a_shared_factor_is_penalised_once() -> None:
    model = bank_slices().double()
    with torch.no_grad():
        for factor in model[0].factors:
            factor.copy_(2 * torch.eye(len(factor)))
    assert orthogonality_penalty(model).item() == 9 * (3 + 4 + 4 + 3 + 3)
