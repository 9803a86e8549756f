"""Learning rates follow the cosine, the paper's steps and the warm-up."""

import pytest

from bitfactor.common.errors import InputError
from bitfactor.training import Optimization
from bitfactor.training.optimization import learning_rate

BASE = {"epochs": 90, "batch_size": 1, "learning_rate": 1e-3}


def test_cosine():
    plan = Optimization(epochs=1, batch_size=1, learning_rate=0.4, min_lr=0.1)
    assert [learning_rate(plan, x, 1) for x in (0, 0.5, 1)] == pytest.approx([0.4, 0.25, 0.1])


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
        ({"ema": 1.0}, "--ema"),
        ({"schedule": "step"}, "--min-lr"),
        ({"schedule": "step", "plateaus": 1, "min_lr": 1e-6}, "--plateaus"),
        ({"min_lr": 0.2}, "--min-lr"),
        ({"real_weight_epochs": 90}, "--real-weight-epochs"),
        ({"limit": 0}, "--limit"),
    ],
)
def test_what_cannot_be_is_named(wrong, option):
    with pytest.raises(InputError, match=f"^{option}: expected"):
        Optimization(**{**BASE, **wrong})
