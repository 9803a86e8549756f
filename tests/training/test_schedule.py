"""Learning rates follow the cosine, the paper's steps and the warm-up."""

import copy

import pytest
import torch
from torch import nn

from bitfactor.common.errors import InputError
from bitfactor.nn import BinaryConv2d, BinaryLinear
from bitfactor.training import OPTIMIZERS, Optimization
from bitfactor.training.optimization import learning_rate, optimizer_of, orthogonal

BASE = {"epochs": 90, "batch_size": 1, "learning_rate": 1e-3}


def test_cosine():
    plan = Optimization(epochs=1, batch_size=1, learning_rate=0.4, min_lr=0.1)
    assert [learning_rate(plan, x, 1) for x in (0, 0.5, 1)] == pytest.approx([0.4, 0.25, 0.1])
    assert learning_rate(plan, 0.5, 1, peak=0.2) == pytest.approx(0.15)


def test_linear():
    plan = Optimization(epochs=1, batch_size=1, learning_rate=0.4, min_lr=0.1, schedule="linear")
    assert [learning_rate(plan, x, 1) for x in (0, 0.25, 1)] == pytest.approx([0.4, 0.325, 0.1])


def test_the_steps_of_the_paper():
    """Ninety epochs, from 1e-3 to 1e-6, dropped every thirty."""
    plan = Optimization(**BASE, schedule="step", plateaus=3, min_lr=1e-6)
    rates = [learning_rate(plan, epoch, 90) for epoch in range(90)]
    assert rates[:30] == pytest.approx([1e-3] * 30)
    assert rates[30:60] == pytest.approx([10**-4.5] * 30)
    assert rates[60:] == pytest.approx([1e-6] * 30)


@pytest.mark.parametrize("schedule", ["cosine", "step"])
def test_warm_up_rises_along_a_line(schedule):
    plan = Optimization(**BASE, schedule=schedule, min_lr=1e-6, warmup_epochs=2)
    rates = [learning_rate(plan, epoch, 90) for epoch in (0, 0.5, 1, 2)]
    assert rates == pytest.approx([1e-5, 2.5e-4, 5e-4, 1e-3])


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"weight_decay": -1}, "--weight-decay"),
        ({"latent_rate": -1.0}, "--latent-rate"),
        ({"rest_rate": -0.1}, "--rest-rate"),
        ({"ema": 1.0}, "--ema"),
        ({"schedule": "step"}, "--min-lr"),
        ({"schedule": "step", "plateaus": 1, "min_lr": 1e-6}, "--plateaus"),
        ({"min_lr": 0.2}, "--min-lr"),
        ({"real_weight_epochs": 90}, "--real-weight-epochs"),
        ({"limit": 0}, "--limit"),
        ({"cutmix": -1.0}, "--cutmix"),
        ({"gradient_floor": -1.0}, "--gradient-floor"),
        ({"freeze_flips": 1.0}, "--freeze-flips"),
        ({"momentum": 0.9}, "--momentum"),
        ({"nesterov": True}, "--nesterov"),
        ({"nesterov": True, "optimizer": "sgd", "momentum": 0.0}, "--nesterov"),
        ({"real_weight_rate": 0.1}, "--real-weight-rate"),
        ({"real_weight_decay": 0.1}, "--real-weight-decay"),
        ({"teacher": "runs/a", "teacher_weight": 1.1}, "--teacher-weight"),
    ],
)
def test_what_cannot_be_is_named(wrong, option):
    with pytest.raises(InputError, match=f"^{option}: expected"):
        Optimization(**{**BASE, **wrong})


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("still", ["latent_rate", "alpha_rate", "weight_rate", "rest_rate"])
def test_what_has_the_rate_zero_stands_still(optimizer, still):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 1), BinaryConv2d(4, 5, 3, latent="tucker", scale="learned"))
    plan = Optimization(**BASE, optimizer=optimizer, weight_decay=0.1, **{still: 0.0})
    before = copy.deepcopy(model)
    first = optimizer_of(model, plan)
    for _ in range(2):
        first.zero_grad()
        model(torch.randn(3, 2, 5, 5)).square().sum().backward()
        first.step()
    kinds = {id(p): group["name"] for group in first.param_groups for p in group["params"]}
    stood = {"latent_rate": {"latents", "factors"}, "alpha_rate": {"alphas"}}.get(still)
    stood = stood or {"weight_rate": {"weights"}, "rest_rate": {"rest"}}[still]
    for parameter, start in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(parameter, start) == (kinds[id(parameter)] in stood)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5)])
def test_steps_of_muon_are_nearly_orthogonal(shape):
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_muon_moves_latents_and_adamw_the_rest():
    """Its state is loaded by another one, which goes on as the first does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), BinaryLinear(6, 5, latent="none"), nn.Linear(5, 3))
    plan = Optimization(**BASE, optimizer="muon", weight_decay=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    first, x = optimizer_of(model, plan), torch.randn(7, 4)
    model(x).square().sum().backward()
    first.step()
    moved = [(p - start).abs().max() for p, start in zip(model.parameters(), before, strict=True)]
    assert min(moved) > 0
    assert all(p.grad is not None for p in model.parameters())
    other = copy.deepcopy(model)
    second = optimizer_of(other, plan)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for one, optimizer in ((model, first), (other, second)):
        optimizer.zero_grad()
        one(x).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_momentum_is_that_of_the_authors_where_none_is_named():
    model = nn.Sequential(BinaryLinear(8, 8), nn.Linear(8, 2))

    def made(**options):
        return optimizer_of(model, Optimization(epochs=1, batch_size=1, learning_rate=0.1, **options))

    assert {group["momentum"] for group in made(optimizer="sgd").param_groups} == {0.9}
    assert {group["nesterov"] for group in made(optimizer="sgd").param_groups} == {False}
    assert {group["nesterov"] for group in made(optimizer="sgd", nesterov=True).param_groups} == {True}
    assert made(optimizer="muon").momentum == 0.95


def test_a_step_of_muon_is_that_of_its_momentum_made_orthogonal():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(32, 8))
    groups = [{"params": [weight], "name": "latents", "lr": 1.0, "weight_decay": 0.0}]
    optimizer, average = OPTIMIZERS["muon"](groups, lr=1.0), torch.zeros_like(weight)
    for _ in range(3):
        before, weight.grad = weight.detach().clone(), torch.randn(32, 8)
        average = 0.95 * average + 0.05 * weight.grad
        u, _, vt = torch.linalg.svd(0.05 * weight.grad + 0.95 * average, full_matrices=False)
        optimizer.step()
        step = before - weight.detach()
        assert 0.15 < step.square().mean().sqrt() < 0.25
        assert torch.cosine_similarity(step.flatten(), (u @ vt).flatten(), dim=0) > 0.95
