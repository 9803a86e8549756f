"""Each row gets the learning rate of its best mean."""

import pytest

from bitfactor.common.errors import InputError
from bitfactor.study import Grid, Rates, StudyDirectory, read_study
from bitfactor.study.grid import Outcome

AXES = {"latent": ["none", "svd"], "scale": ["learned"], "learning_rate": [0.001, 0.003]}
ACCURACY = {
    ("none-learned", 0.001): [0.5, 0.6],
    ("none-learned", 0.003): [0.7, 0.3],
    ("svd-learned", 0.001): [0.5, 0.5],
    ("svd-learned", 0.003): [0.4, 0.7],
    ("real", 0.001): [0.9, 0.9],
    ("real", 0.003): [0.8, 0.8],
}


@pytest.fixture
def search(tmp_path):
    grid = Grid(AXES, [0, 1], real=True)
    study = StudyDirectory(tmp_path / "search")
    study.start("cifar10-resnet18", {"holdout": "validation"}, grid)
    for cell in grid:
        study.cell(cell).describe(cell, [])
        accuracy = ACCURACY[str(cell.row), cell.axes["learning_rate"]][cell.seed]
        study.cell(cell).finish(Outcome("accuracy", {"accuracy": accuracy}, seconds=1.0))
    return study


def cell(search, name):
    return search.path / "cells" / name


def state_of(search, cell):
    return next(one.state for one in read_study(search.path).trainings if one.cell == cell)


def test_each_row_has_the_rate_of_its_best_mean(search):
    rates = Rates.best_of(read_study(search.path))
    assert rates.chosen == {"none-learned": 0.001, "svd-learned": 0.003, "real": 0.001}
    assert (rates.searched, rates.seeds, rates.holdout) == ([0.001, 0.003], 2, "validation")


def test_a_rate_whose_trainings_were_given_up_comes_after_the_others(search):
    given_up = StudyDirectory(search.path).cell(next(iter(Grid(AXES, [0]))))
    (given_up.path / "outcome.json").unlink()
    given_up.give_up()
    study = read_study(search.path)
    assert Rates.best_of(study).chosen["none-learned"] == 0.003
    (training,) = (one for one in study.trainings if one.given_up)
    assert training.state == "given up, no epoch"
    given_up.give_up(diverged=True)
    assert state_of(search, training.cell) == "diverged, no epoch"
    given_up.describe(training.cell, [])  # it is trained again
    assert state_of(search, training.cell) == "unfinished, no epoch"


def test_what_is_not_finished_chooses_nothing(search):
    (cell(search, "svd-learned-seed1-lr0.003") / "outcome.json").unlink()
    with pytest.raises(InputError, match=r"found svd-learned-seed1-lr0\.003, which is not"):
        Rates.best_of(read_study(search.path))
    (cell(search, "svd-learned-seed1-lr0.003") / "cell.json").unlink()
    with pytest.raises(InputError, match="found fewer trainings of svd-learned"):
        Rates.best_of(read_study(search.path))


@pytest.mark.parametrize(
    ("axes", "found"),
    [
        ({"latent": ["none"], "scale": ["learned"]}, "one over latent, scale"),
        ({**AXES, "rank": ["0.5", "1"]}, "one over latent, scale, learning_rate, rank"),
    ],
)
def test_a_study_over_something_else_is_no_search(tmp_path, axes, found):
    StudyDirectory(tmp_path / "study").start("digits", {}, Grid(axes, [0]))
    with pytest.raises(InputError, match=f"expected a study over .*, found {found}"):
        Rates.best_of(read_study(tmp_path / "study"))
    with pytest.raises(InputError, match="expected the directory of a study, found no such file"):
        Rates.best_of(read_study(tmp_path))
