"""Each parameter gets the rate and the decay that are its own."""

import pytest
import torch
from torch import nn

from bitfactor.binarization import binarize_, parameter_groups
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, LAYERWISE, class_of


@pytest.mark.parametrize("latent", [*LAYERWISE, *JOINT])
def test_each_parameter_is_in_one_group(latent) -> None:
    layers = [
        nn.Conv2d(3, 8, 3),
        *(nn.Conv2d(8, 8, 3) for _ in range(3)),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 4, 3),
    ]
    model = nn.Sequential(*layers)
    binarize_(model, latent=latent)
    groups = {group["name"]: group for group in parameter_groups(model, weight_decay=0.1)}
    held = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())
    assert len(groups["alphas"]["params"]) == 3
    assert len(groups["weights"]["params"]) == 2
    assert [groups[name]["weight_decay"] for name in ("latents", "weights", "alphas", "rest")] == [
        0.1,
        0.1,
        0,
        0,
    ]
    assert ("factors" in groups) == (bool(class_of(latent).takes))
    torch.optim.Adam(groups.values(), lr=0.1).step()


def test_the_core_is_the_latent() -> None:
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(4)])
    binarize_(model, latent="holistic")
    groups = {group["name"]: group["params"] for group in parameter_groups(model)}
    assert groups["latents"] == [model[1].latent.core]
    assert len(groups["factors"]) == 3


def test_factors_have_a_rate_of_their_own() -> None:
    model = nn.Sequential(*[nn.Conv2d(8, width, 3) for width in (8, 8, 8, 8)])
    binarize_(model, latent="tucker", rank=0.5)
    by_rank = parameter_groups(model, lr=1.0, factor_rate="1/rank")
    rates = {parameter: group["rate"] for group in by_rank for parameter in group["params"]}
    latent = model[1].latent
    assert [rates[factor] * factor.shape[1] for factor in latent.factors] == [1.0] * len(latent.factors)
    assert rates[latent.core] == rates[model[0].weight] == 1.0
    frozen = torch.optim.Adam(parameter_groups(model, lr=1.0, factor_rate=0))
    before = [factor.detach().clone() for factor in latent.factors], latent.core.detach().clone()
    model(torch.randn(2, 8, 9, 9)).sum().backward()
    frozen.step()
    assert all(torch.equal(a, b) for a, b in zip(latent.factors, before[0], strict=True))
    assert not torch.equal(latent.core, before[1])


def test_each_kind_may_have_a_rate_of_its_own() -> None:
    model = nn.Sequential(*[nn.Conv2d(8, width, 3) for width in (8, 8, 8)])
    binarize_(model, latent="svd", scale="learned")
    rates = {"latents": 0.5, "alphas": 2, "weights": 0.0}
    groups = parameter_groups(model, lr=0.1, factor_rate=0.25, rates=rates)
    found = {group["name"]: group["rate"] for group in groups}
    assert found == {"latents": 0.5, "factors": 0.125, "alphas": 2, "weights": 0.0, "rest": 1.0}
    assert all(group["lr"] == 0.1 * group["rate"] for group in groups)
    still = dict.fromkeys(("latents", "alphas", "weights", "rest"), 1.0)
    assert parameter_groups(model, rates=still) == parameter_groups(model)


@pytest.mark.parametrize(
    ("latent", "rank", "weight", "expected"),
    [
        ("tucker", 2, nn.Conv2d(8, 8, 3), {"core": 1, "factors.0": 2, "factors.1": 2, "factors.3": 2}),
        ("tucker", None, nn.Conv2d(8, 32, 1), {"core": 1, "factors.0": 32, "factors.1": 8, "factors.2": 1}),
        ("shared", None, nn.Conv2d(8, 32, 1), {"core": 1, "output.factor": 32, "channel.factor": 8}),
        ("tt", None, nn.Conv2d(8, 32, 3), {"cores.0": 32, "cores.1": 1, "cores.2": 9, "cores.3": 3}),
        ("svd", None, nn.Conv2d(8, 32, 3), {"u": 32, "s": 32, "vt": 1}),
        ("window", None, nn.Conv2d(8, 4, 5, groups=4), {"coefficients": 1, "basis": 25}),
    ],
)
def test_the_rank_of_each_factor(latent, rank, weight, expected) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), weight, nn.Conv2d(weight.out_channels, 4, 3))
    binarize_(model, latent=latent, rank=rank)
    by_rank = parameter_groups(model, lr=1.0, factor_rate="1/rank")
    rates = {parameter: group["rate"] for group in by_rank for parameter in group["params"]}
    own = dict(model[1].latent.named_parameters())
    assert {name: 1 / rates[own[name]] for name in expected} == pytest.approx(expected)


def test_what_is_not_decayed() -> None:
    model = nn.ModuleList([nn.RMSNorm(4), nn.LSTM(4, 4), nn.MultiheadAttention(4, 2, add_bias_kv=True)])
    rest = {group["name"]: group["params"] for group in parameter_groups(model)}["rest"]
    names = {name for name, parameter in model.named_parameters() if any(parameter is one for one in rest)}
    assert names == {name for name, _ in model.named_parameters() if "bias" in name or name == "0.weight"}


@pytest.mark.parametrize(
    ("wrong", "found"),
    [({"factor_rate": -0.1}, "-0.1"), ({"weight_decay": -1}, "-1"), ({"lr": -1.0}, "-1.0")],
)
def test_a_rate_below_zero_is_refused(wrong, found) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected 0 or more, found {found}"):
        parameter_groups(nn.Linear(2, 2), **{"lr": 0.1, **wrong})


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"alphas": -0.1}, r"rates\['alphas'\]: expected 0 or more, found -0.1"),
        ({"alphas": "slow"}, r"rates\['alphas'\]: expected a finite number, found 'slow'"),
        ({"factors": 0.1}, r"\(rates\): expected one of latents, alphas, weights, rest, found 'factors'"),
    ],
)
def test_rates_that_cannot_be_are_refused(rates, words) -> None:
    with pytest.raises(InputError, match=words):
        parameter_groups(nn.Linear(2, 2), lr=0.1, rates=rates)


def test_the_factor_rate_of_another_word_is_refused() -> None:
    with pytest.raises(InputError, match="expected a finite number or one of 1/rank, found '1/D'"):
        parameter_groups(nn.Linear(2, 2), factor_rate="1/D")


@pytest.mark.parametrize("given", [{"factor_rate": "1/rank"}, {"rates": {"rest": 0.5}}])
def test_a_rate_is_a_fraction_of_a_rate(given) -> None:
    with pytest.raises(InputError, match="lr: expected the learning rate that rates are fractions of, found"):
        parameter_groups(nn.Linear(2, 2), **given)
