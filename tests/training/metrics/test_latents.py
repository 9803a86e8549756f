"""Statistics of latent weights, known by hand, and the guard against divergence."""

import pytest
import torch
from torch import nn

from bitfactor.binarization import Binarization, binarize_
from bitfactor.common.errors import InputError
from bitfactor.training.metrics import (
    FlipRatio,
    factor_statistics,
    latent_statistics,
)
from bitfactor.training.metrics.latents import troubles


def binary(latent: str, **choices: object) -> nn.Module:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    binarize_(model, Binarization(latent=latent, **choices))
    return model


def test_statistics_of_known_weights() -> None:
    model = binary("none")
    with torch.no_grad():
        model[1].latent.weight.fill_(0.5)
        model[1].latent.weight[:2] = 2.0
    found = latent_statistics(model)["1"]
    assert found.outside == 0.25
    assert found.std == pytest.approx(1.5 * (0.25 * 0.75) ** 0.5)


@pytest.mark.parametrize("latent", ["svd", "tucker", "holistic", "shared"])
def test_orthonormal_factors_have_full_rank_and_condition_one(latent) -> None:
    found = factor_statistics(binary(latent))
    assert found
    for statistics in found.values():
        assert statistics.condition == pytest.approx(1, rel=1e-4)


def test_a_factor_of_rank_one() -> None:
    model = binary("tucker")
    with torch.no_grad():
        model[1].latent.factors[0].copy_(torch.diag(torch.tensor([1.0] + [1e-9] * 7)))
    found = factor_statistics(model)["1.factors.0"]
    assert found.effective_rank == pytest.approx(1, abs=1e-5)
    assert found.condition == pytest.approx(1e9, rel=1e-3)


@pytest.mark.parametrize("factor", [1e5, float("nan")])
def test_guard_names_the_layer_that_diverges(factor) -> None:
    model = binary("tucker")
    assert troubles(model, flipped=0.0, first=True) == []
    with torch.no_grad():
        model[2].latent.core.mul_(factor)
    (told,) = troubles(model, flipped=0.0, first=True)
    assert "layer 2: expected latent weights with a std of at most 100" in told


@pytest.mark.filterwarnings("ignore:weight_estimator 'identity'")
def test_latents_without_a_mask_grow_and_the_guard_sees_it() -> None:
    torch.manual_seed(0)
    x, target = torch.randn(64, 8), torch.randn(64, 8)
    models = {}
    for estimator in ("clipped", "identity"):
        model = models[estimator] = nn.Sequential(nn.Linear(8, 8, bias=False))
        binarize_(model, Binarization(latent="tucker", real_ends=False, weight_estimator=estimator))
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        for _ in range(300):
            optimizer.zero_grad()
            (model(x) - target).square().mean().backward()
            optimizer.step()
    assert troubles(models["clipped"], flipped=0.0, first=True) == []
    assert len(troubles(models["identity"], flipped=0.0, first=True)) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda model: factor_statistics(None), "expected a Module"),
        (lambda model: latent_statistics([model]), "expected a Module"),
        (lambda model: FlipRatio(3), "expected a Module"),
    ],
)
def test_wrong_arguments(call, said) -> None:
    with pytest.raises(InputError, match=said):
        call(binary("tucker"))


def test_values_that_are_no_numbers() -> None:
    model = binary("tucker", scale="learned")
    with torch.no_grad():
        next(iter(model[1].latent.matrices().values())).fill_(float("nan"))
    with pytest.raises(InputError, match=r"1\..*: expected finite values, found NaN"):
        factor_statistics(model)
