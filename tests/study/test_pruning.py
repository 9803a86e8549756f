"""Which trainings of a search are given up, from what they have written."""

import json
from functools import partial

import pytest

from bitfactor.study import Cell, CellDirectory, Job
from bitfactor.study.jobs import Halving

EPOCHS = 9


@pytest.fixture
def job(tmp_path):
    """A training that has reached `accuracy`, a value for each epoch so far."""

    def job(accuracy, rate, *, latent="none", seed=0):
        cell = Cell({"latent": latent, "scale": "learned", "learning_rate": rate}, seed)
        directory = CellDirectory(tmp_path / cell.name)
        directory.path.mkdir(exist_ok=True)
        lines = [{"epoch": i + 1, "loss": 1.0, "accuracy": value} for i, value in enumerate(accuracy)]
        directory.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Job(cell, directory, ["bitfactor"], partial(int), EPOCHS)

    return job


@pytest.fixture
def halving():
    return Halving("accuracy")


def test_a_third_goes_on_after_one_ninth_and_one_third_of_the_epochs(job, halving):
    first = [job([0.1 + 0.1 * i], 0.001 * i) for i in range(1, 6)]
    assert [halving.gives_up(one) for one in reversed(first)] == [False, True, True, True, True]
    assert not halving.gives_up(job([0.7], 0.01))  # the best so far
    assert not halving.gives_up(job([0.65], 0.02))  # the second of seven
    assert not halving.gives_up(job([0.7, 0.8, 0.9], 0.01))
    assert not halving.gives_up(job([0.65, 0.9], 0.02))  # epoch 2 decides nothing
    assert halving.gives_up(job([0.65, 0.9, 0.8], 0.02))


def test_each_row_and_seed_has_a_best_of_its_own(job, halving):
    assert not halving.gives_up(job([0.9], 0.01))
    assert halving.gives_up(job([0.5], 0.001))
    assert not halving.gives_up(job([0.5], 0.001, latent="tucker"))
    assert not halving.gives_up(job([0.5], 0.001, seed=1))


def test_the_end_of_a_training_decides_nothing(job, halving):
    assert not halving.gives_up(job([0.9] * EPOCHS, 0.01))
    found = job([0.95] * (EPOCHS - 1) + [0.1], 0.02)
    assert not halving.gives_up(found)


def test_a_loss_that_is_no_number_is_given_up(job, halving):
    assert halving.gives_up(job([float("nan")], 0.01))
