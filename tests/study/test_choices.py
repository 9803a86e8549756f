"""Each row gets the setting of its best mean."""

import json

import pytest

from bitfactor.common.errors import InputError
from bitfactor.study import Choices, Grid, StudyDirectory, read_study
from bitfactor.study.grid import Cell, Outcome
from bitfactor.study.table import write_table

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
    choices = Choices.best_of(read_study(search.path))
    best = {"none-learned": 0.001, "svd-learned": 0.003, "real": 0.001}
    assert choices.chosen == {row: {"learning_rate": rate} for row, rate in best.items()}
    assert choices.searched == {"learning_rate": [0.001, 0.003]}
    assert (choices.settings, choices.seeds, choices.holdout) == (2, 2, "validation")


def test_a_rate_whose_trainings_were_given_up_comes_after_the_others(search):
    given_up = StudyDirectory(search.path).cell(next(iter(Grid(AXES, [0]))))
    (given_up.path / "outcome.json").unlink()
    given_up.give_up()
    study = read_study(search.path)
    assert Choices.best_of(study).chosen["none-learned"] == {"learning_rate": 0.003}
    (training,) = (one for one in study.trainings if one.given_up)
    assert training.state == "given up, no epoch"
    given_up.give_up(diverged=True)
    assert state_of(search, training.cell) == "diverged, no epoch"
    given_up.describe(training.cell, [])  # it is trained again
    assert state_of(search, training.cell) == "unfinished, no epoch"


def test_what_is_not_finished_chooses_nothing(search):
    (cell(search, "svd-learned-seed1-lr0.003") / "outcome.json").unlink()
    with pytest.raises(InputError, match=r"found svd-learned-seed1-lr0\.003, which is not"):
        Choices.best_of(read_study(search.path))
    (cell(search, "svd-learned-seed1-lr0.003") / "cell.json").unlink()
    with pytest.raises(InputError, match="found fewer trainings of svd-learned"):
        Choices.best_of(read_study(search.path))


def test_the_best_setting_is_of_all_axes_that_mean_something_to_the_row(tmp_path):
    axes = {**AXES, "factor_rate": [1.0, "1/rank"], "widths": [(8,), (8, 16)], "keep_real": [(), ("0", "2")]}
    search, fixed = StudyDirectory(tmp_path / "search"), {"teacher": "runs/my teacher", "latent_rate": 0.5}
    search.start("digits", fixed, Grid(axes, [0]))
    best = {"learning_rate": 0.003, "factor_rate": "1/rank", "widths": (8,), "keep_real": ("0", "2")}
    for cell in Grid(axes, [0]):
        search.cell(cell).describe(cell, [])
        accuracy = sum(cell.axes.get(name) == value for name, value in best.items()) / 10
        search.cell(cell).finish(Outcome("accuracy", {"accuracy": accuracy}, seconds=1.0))
    choices = Choices.best_of(read_study(search.path))
    assert choices.chosen["svd-learned"] == best
    free = {name: value for name, value in best.items() if name != "factor_rate"}
    assert choices.chosen["none-learned"] == free
    assert choices.settings == 16
    assert read_study(search.path).design.arguments == fixed
    write_table(read_study(search.path), tmp_path / "search.parquet")
    assert Choices.best_of(read_study(tmp_path / "search.parquet")) == choices

    test, grid = StudyDirectory(tmp_path / "test"), Grid({"latent": ["svd"], "scale": ["learned"]}, [0])
    for _ in range(2):  # the second time it is resumed
        test.start("digits", {}, grid, choices)
    assert read_study(test.path).design.choices == choices
    cell = Cell({"latent": "svd", "scale": "learned"}, 0, chosen=best)
    assert cell.name == "svd-learned-seed0"
    assert cell.flags[4:10] == ["--learning-rate", "0.003", "--factor-rate", "1/rank", "--widths", "8"]
    test.cell(cell).describe(cell, [])
    assert read_study(test.path).trainings[0].cell == cell


def test_choices_of_earlier_versions_are_read_and_resumed(tmp_path):
    study, grid = StudyDirectory(tmp_path / "study"), Grid({"latent": ["svd"], "scale": ["learned"]}, [0])
    choices = Choices({"svd-learned": {"learning_rate": 0.01}}, {"learning_rate": [0.01, 1.0]}, 2, None)
    study.start("digits", {}, grid, choices)
    file = study.path / "study.json"
    design = json.loads(file.read_text())
    del design["choices"]
    rates = {"chosen": {"svd-learned": 0.01}, "searched": [0.01, 1.0], "seeds": 2, "holdout": None}
    file.write_text(json.dumps({**design, "rates": rates}))
    study.start("digits", {}, grid, choices)
    assert read_study(study.path).design.choices == choices
    stored = {"axes": {"latent": "svd", "scale": "learned"}, "seed": 0, "real": False, "rate": 0.01}
    assert Cell.of(stored).chosen == {"learning_rate": 0.01}
    assert Cell.of({**stored, "rate": None}).chosen == {}


def test_a_study_over_rows_alone_is_no_search(tmp_path):
    axes = {"latent": ["none"], "scale": ["learned"]}
    StudyDirectory(tmp_path / "study").start("digits", {}, Grid(axes, [0]))
    with pytest.raises(InputError, match=r"expected a study over .*, found one over latent, scale"):
        Choices.best_of(read_study(tmp_path / "study"))
    with pytest.raises(InputError, match="expected the directory of a study, found no such file"):
        Choices.best_of(read_study(tmp_path))
